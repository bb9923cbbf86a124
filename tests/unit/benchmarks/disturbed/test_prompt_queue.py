"""The least mean time to a first token, where queues may vanish."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.disturbed.prompt_queue import Prompt, least_mean_s

STEP_S = 0.03
SLOWER = 2.5  # a prompt's share of the server over its time in one long step


def prompts(arrivals_s: list[float], work_s: list[float]) -> list[Prompt]:
    return [
        Prompt(arrival_s, SLOWER * one, SLOWER * one + STEP_S, one + STEP_S)
        for arrival_s, one in zip(arrivals_s, work_s, strict=True)
    ]


of_work = st.lists(st.floats(0.001, 0.2), min_size=1, max_size=30)


@given(work_s=of_work, seed=st.integers(0, 99), clears=st.integers(0, 5))
def test_more_clears_never_make_it_longer_and_nothing_is_below_whole_prompts(
    work_s: list[float], seed: int, clears: int
) -> None:
    rng = np.random.default_rng(seed)
    asked = prompts(np.cumsum(rng.exponential(0.1, len(work_s))).tolist(), work_s)
    few, more = (least_mean_s(asked, n, STEP_S) for n in (clears, clears + 1))
    every = least_mean_s(asked, len(asked), STEP_S)
    assert few >= more - 1e-3
    assert every <= more + 1e-3
    assert every == pytest.approx(np.mean([p.whole_s for p in asked]), rel=1e-3)


def test_without_clears_it_is_the_wait_of_pollaczek_and_khinchine() -> None:
    rng, n, work_s, load = np.random.default_rng(1), 20_000, 0.02, 0.5
    service_s = SLOWER * work_s
    arrivals_s = np.cumsum(rng.exponential(service_s / load, n)).tolist()
    wait_s = least_mean_s(prompts(arrivals_s, [work_s] * n), 0, 0.0) - service_s
    # Nobody takes less than a step and the service here: that is added to who does not wait.
    assert load * service_s / 2 / (1 - load) == pytest.approx(wait_s - STEP_S * 0.5, rel=0.25)


def test_the_shortest_prompt_goes_first() -> None:
    two = [Prompt(0.0, 10.0, 10.0, 1.0), Prompt(1.0, 2.0, 2.0, 1.0)]
    assert least_mean_s(two, 0, 0.0) == pytest.approx((12.0 + 2.0) / 2)


def test_a_clear_comes_when_it_is_worth_most() -> None:
    two = [Prompt(0.0, 10.0, 10.0, 1.0), Prompt(1.0, 2.0, 2.0, 1.0)]
    # When the second one comes: 0.9 of the first are left, which takes 0.9 s in one step.
    assert least_mean_s(two, 1, 0.0) == pytest.approx((1.9 + 1.0) / 2, rel=1e-3)


def test_a_queue_that_only_grows_ends() -> None:
    asked = prompts([0.001 * k for k in range(500)], [0.2] * 500)
    assert math.isfinite(least_mean_s(asked, 3, STEP_S))
