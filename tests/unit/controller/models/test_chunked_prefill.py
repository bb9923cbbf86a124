"""Prompts in chunks: their wait and the tokens they hold up, against a queue in virtual time."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.arrays import Floats
from controller.models.chunked_prefill import Prompts
from tests.property.strategies import examples

S = 0.05  # a step with prompts
DECODES_S, MIXED_S, TOKEN_S = 0.024, 0.002, 1e-4
ROOM = (S - DECODES_S - MIXED_S) / TOKEN_S  # 240 tokens


def prompts(per_s: float, *tokens: float) -> Prompts:
    return Prompts(
        np.array(tokens), np.full(len(tokens), 1 / len(tokens)), per_s, TOKEN_S, MIXED_S, DECODES_S
    )


def wait_s(these: Prompts, step_s: float = S, horizon_s: float = 60.0) -> float:
    return float(these.steps(np.array([step_s])).wait_s(horizon_s)[0])


def load(these: Prompts, step_s: float = S) -> float:
    room = (step_s - DECODES_S - MIXED_S) / TOKEN_S
    return these.per_s * float(these.tokens.mean()) / room * step_s


def simulated(these: Prompts, seconds: float) -> tuple[float, float]:
    """The mean time to first token, and the share of steps that have prompt tokens."""
    rng = np.random.default_rng(1)
    now_s, next_s, steps, mixed = 0.0, rng.exponential(1 / these.per_s), 0, 0
    waiting: deque[list[float]] = deque()  # arrival, tokens left
    waits_s = []
    while now_s < seconds:
        while next_s <= now_s:
            waiting.append([next_s, float(rng.choice(these.tokens))])
            next_s += rng.exponential(1 / these.per_s)
        room, ended, chunk = ROOM, [], 0.0
        while waiting and room > 1e-9:
            used = min(room, waiting[0][1])
            room, chunk = room - used, chunk + used
            waiting[0][1] -= used
            if waiting[0][1] < 1e-9:
                ended.append(waiting.popleft()[0])
        now_s += DECODES_S + (MIXED_S + TOKEN_S * chunk if chunk else 0.0)
        steps, mixed = steps + 1, mixed + bool(chunk)
        waits_s += [now_s - began_s for began_s in ended]
    return float(np.mean(waits_s)), mixed / steps


LENGTHS = {"short": (60.0,), "of several steps": (900.0,), "mixed": (50.0, 100.0, 200.0, 1500.0)}


@pytest.mark.parametrize("rho", [0.1, 0.8])
@pytest.mark.parametrize("tokens", LENGTHS.values(), ids=LENGTHS)
def test_mean_ttft_and_the_share_of_steps_with_prompts_are_those_of_a_queue(tokens, rho):
    these = prompts(rho / load(prompts(1.0, *tokens)), *tokens)
    ttft_s, share = simulated(these, 15_000 / these.per_s)
    assert rho < 0.3 or wait_s(these, horizon_s=600.0) == pytest.approx(ttft_s, rel=0.06)
    found = these.steps(np.array([S])).late_share(these.per_s, np.ones_like)
    # Several short ones share a step, which is counted as one for each where load is light.
    assert float(found[0]) == pytest.approx(share, rel=0.2)


def test_a_prompt_that_is_alone_takes_its_own_time_and_half_a_step_to_begin_with() -> None:
    # 600 tokens: two steps of 240, and one of 120.
    alone = 2 * S + DECODES_S + MIXED_S + 120 * TOKEN_S
    assert wait_s(prompts(1e-9, 600.0)) == pytest.approx(DECODES_S / 2 + alone)
    assert wait_s(prompts(1e-9, 600.0, 60.0)) == pytest.approx(
        DECODES_S / 2 + (alone + DECODES_S + MIXED_S + 60 * TOKEN_S) / 2
    )


def test_it_is_served_after_half_of_what_has_come_too_much_by_then() -> None:
    for rho in (3.0, 10.0):
        these = prompts(rho / load(prompts(1.0, 240.0)), 240.0)
        assert wait_s(these, horizon_s=600.0) == pytest.approx(300 * (rho - 1), rel=0.01)


def test_the_wait_is_pollaczek_and_khinchines_for_ever() -> None:
    these = prompts(0.5 / load(prompts(1.0, 239.0, 717.0)), 239.0, 717.0)
    spread, steps_s = 1 + 0.25, 478 / 240 * S  # 1 + CV^2, what a prompt takes beside others
    queue_s = spread * 0.5 * steps_s / (2 * (1 - 0.5))
    begin_s = (S + DECODES_S) / 4
    own_s = 478 * TOKEN_S + 2 * (DECODES_S + MIXED_S)
    assert wait_s(these, horizon_s=1e9) == pytest.approx(begin_s + own_s + queue_s, rel=1e-6)


lengths = st.lists(st.floats(1, 5000), min_size=1, max_size=8)
rates = st.floats(1e-3, 100)
steps_s = st.floats(DECODES_S + MIXED_S + 1e-3, 1.0)


@examples(0.5)
@given(lengths, rates, st.floats(1, 2), steps_s)
def test_more_prompts_or_a_longer_time_to_look_at_make_no_wait_shorter(tokens, per_s, more, step_s):
    here = wait_s(prompts(per_s, *tokens), step_s)
    assert wait_s(prompts(per_s * more, *tokens), step_s) >= here * (1 - 1e-9)
    assert wait_s(prompts(per_s, *tokens), step_s, 60 * more) >= here * (1 - 1e-9)
    longer = [more * one for one in tokens]
    assert wait_s(prompts(per_s, *longer), step_s) >= here * (1 - 1e-9)


@examples(0.5)
@given(lengths, rates, st.lists(steps_s, min_size=2, max_size=5))
def test_where_more_comes_than_is_served_longer_steps_make_the_queue_shorter(tokens, per_s, at_s):
    these, at_s = prompts(per_s, *tokens), sorted(at_s)
    own_s = max(at_s) + sum(tokens) * TOKEN_S + sum(at_s)
    if min(load(these, step_s) for step_s in at_s) < 2 or own_s > 1:
        return
    waits_s = these.steps(np.array(at_s)).wait_s(60.0)
    assert (np.diff(waits_s) <= own_s).all()  # but for half a step, and those of its own


def late_share(these: Prompts, step_s: float, late: float, per_s: float) -> float:
    def all_alike(predicted_s: Floats) -> Floats:
        return np.full_like(predicted_s, late)

    return float(these.steps(np.array([step_s])).late_share(per_s, all_alike)[0])


@examples(0.5)
@given(lengths, rates, rates, steps_s, st.floats(0, 1))
def test_the_share_of_late_tokens_is_as_large_as_what_is_late_of_each_step(
    tokens: list[float], per_s: float, come: float, step_s: float, late: float
) -> None:
    these = prompts(per_s, *tokens)
    in_steps = late_share(these, step_s, 1.0, come)  # with prompts
    assert 0 < in_steps <= 1 + 1e-9
    assert late_share(these, step_s, late, come) == pytest.approx(late * in_steps)
    assert late_share(these, step_s, 0.0, come) == 0
    assert in_steps <= late_share(these, step_s, 1.0, 2 * come) + 1e-9


def test_the_last_step_of_a_prompt_is_late_only_if_it_is_as_long_itself() -> None:
    def late(predicted_s: Floats) -> Floats:
        return (predicted_s > 0.9 * S).astype(float)

    shares = [
        float(prompts(1.0, tokens).steps(np.array([S])).late_share(1e-6, late)[0])
        / late_share(prompts(1.0, tokens), S, 1.0, 1e-6)
        for tokens in (60.0, 600.0, 700.0)
    ]
    assert shares == pytest.approx([0, 2 / 3, 1], abs=1e-4)


def test_of_steps_one_after_the_other_all_have_prompts_where_more_comes_than_is_served() -> None:
    these = prompts(100.0, 300.0)
    assert late_share(these, S, 1.0, these.per_s) == pytest.approx(1)
