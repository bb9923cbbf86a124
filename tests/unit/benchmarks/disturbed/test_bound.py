"""What chunking costs, by its formula and as a bound."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.disturbed.bound import MeanSteps, long_steps, ttft_bound
from benchmarks.disturbed.replays import Draw
from benchmarks.disturbed.rows import DISTURBED, LOADS, NOTHING, Row
from replicas.profiles.disturbances import Disturbances, EncoderWork, Pauses, SlowPhases

PAPER_4 = Draw(Row(LOADS[0], NOTHING))
D_S = 0.050


def bound(disturbances: Disturbances = NOTHING.disturbances, allowed: float = 0.01):
    steps = MeanSteps(PAPER_4.profile, disturbances)
    requests = PAPER_4.requests(1)
    return ttft_bound(steps, requests, PAPER_4.stats, PAPER_4.rate_per_s, D_S, allowed)


def test_the_terms_of_257_62_at_4() -> None:
    found = bound()
    step_s = 0.0269 / (1 - 4 * (61 * 0.2308e-3 + 257 * 0.12e-3))
    decodes = 4 * step_s * 61
    floor_s = 0.0269 + 0.2308e-3 * decodes
    room = (D_S - floor_s) / 0.12e-3
    service_s = 257 * 0.12e-3 * D_S / (D_S - floor_s)
    load = 4 * service_s
    wait_s = load * service_s / 2 / (1 - load)
    terms = (step_s, decodes, floor_s, room, load)
    assert (
        found.step_s,
        found.decodes,
        found.floor_s,
        found.room_tokens,
        found.load,
    ) == pytest.approx(terms, rel=1e-6)
    whole_s = math.ceil(257 / room) * floor_s + 257 * 0.12e-3
    in_order_s = (1 - math.exp(-decodes)) * floor_s / 2 + wait_s + whole_s
    assert found.in_order_s == pytest.approx(in_order_s)


def test_late_tokens_make_it_less_and_it_stays_above_whole_prompts() -> None:
    strict, usual, every = (bound(allowed=x).ttft_s for x in (0.0, 0.01, 1.0))
    assert strict > usual > every
    assert every == pytest.approx(0.0287 / 2 + 0.0287 + 257 * 0.12e-3, rel=0.01)


@pytest.mark.parametrize(
    "disturbances",
    [
        Disturbances(pauses=(Pauses(0.05, 0.1),)),
        Disturbances(slow=(SlowPhases(0.17, 2.0, 2.0),)),
        Disturbances(encoder=EncoderWork(0.3, 0.08)),
        Disturbances(mixed_s=0.003),
    ],
)
def test_what_takes_time_makes_it_more(disturbances: Disturbances) -> None:
    assert bound(disturbances).ttft_s > bound().ttft_s


def test_noise_of_mean_1_leaves_it() -> None:
    assert bound(Disturbances(noise_cv=0.3)) == bound()


@given(mean=st.floats(0.01, 200), late=st.floats(0, 5000))
def test_long_steps_are_no_more_than_chances_and_at_least_those_at_the_mean(
    mean: float, late: float
) -> None:
    found = long_steps(mean, 1000, late)
    assert 0 <= found <= 1000
    assert found >= min(int(late / mean), 990) - 1


def test_every_row_has_a_bound() -> None:
    for load in LOADS:
        draw = Draw(Row(load, DISTURBED[-1]))
        steps = MeanSteps(draw.profile, DISTURBED[-1].disturbances)
        found = ttft_bound(
            steps, draw.requests(1, 0.1), draw.stats, draw.rate_per_s, draw.itl_s, 0.01
        )
        assert 0 < found.ttft_s < 1
