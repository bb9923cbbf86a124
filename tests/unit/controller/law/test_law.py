"""The law part by part: memory kept free, the targets of steps, what clients see late."""

import itertools
import random
from collections.abc import Iterable
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.law import target
from controller.law.cap import reserve
from controller.law.client_feedback import LEAST, STEP, ClientFeedback, Gaps
from controller.law.forecast import Ahead
from controller.law.target import AIM, LEAST_SERVED, MOST_LOAD, TargetSearch, in_time_s, theta_s
from controller.models.demand import Demand
from controller.models.prompt_work import PromptWork
from controller.models.step_time import StepModel


def ahead(*tokens: float) -> Ahead:
    mean = np.array(tokens)
    return Ahead(np.ones(len(mean)), mean, np.zeros(len(mean)))


@pytest.mark.parametrize("k", [1.0, 8.0, 30.0])
def test_a_reserve_holds_what_those_here_grow_by_and_those_with_k_more(k: float) -> None:
    count, held, prompt = 10, 2000.0, 100.0
    running, newcomer = ahead(2100.0, 2600.0, 2000.0), ahead(110.0, 150.0, 180.0)
    kept = reserve(running, newcomer, count, held, prompt, k)
    then = float((running.mean + k * newcomer.mean).max()) - held - k * prompt
    assert kept.fixed + kept.each * count == pytest.approx(600.0)
    assert kept.fixed + kept.each * (count + k) == pytest.approx(max(then, 600.0))


D = 0.05


@pytest.mark.parametrize(
    ("planned_s", "took_s", "theta"),
    [
        (0.04, 0.10, -0.01),  # a pause of 60 ms comes on top of a shorter step as well
        (0.06, 0.10, 0.03),  # planned beyond D: a step of half the length takes half as long
        (0.04, 0.04, 0.05),
        (0.02, 0.04, 0.025),
    ],
)
def test_a_pause_is_told_from_a_step_that_is_longer_by_its_length(planned_s, took_s, theta):
    assert theta_s(np.array(planned_s), np.array(took_s), D) == pytest.approx(theta)


def search(c0: float) -> tuple[TargetSearch, PromptWork]:
    model, demand = (
        StepModel(c0, 1e-4, 0.0, 1e-4, 0.0, 0.0),
        Demand(np.full(50, 300.0), 3000.0, 0.2),
    )
    return TargetSearch(model, model, demand, 300.0), PromptWork(model, demand, 300.0)


def test_where_d_leaves_little_more_is_counted_on_than_is_carried_inside_it() -> None:
    in_time = in_time_s(np.full(400, 0.04), np.full(400, 0.04), D)
    for c0, is_little in ((0.01, False), (0.0452, True)):
        found, work = search(c0)
        inside_per_s, longest_per_s = work.carried_per_s(D), work.carried_per_s(10 * D)
        served = found.targets(in_time, 0.0, D, 0.0085, known=True).served_per_s
        least = LEAST_SERVED * longest_per_s
        assert (least > inside_per_s) is is_little
        assert served == pytest.approx(MOST_LOAD * max(inside_per_s, least))


def test_where_the_decodes_alone_are_late_no_prompt_waits_for_them() -> None:
    found, _ = search(0.01)
    late = in_time_s(np.full(400, 0.02), np.full(400, 2.0), D)
    strict, free = (found.targets(late, 0.0, D, a, known=True) for a in (0.0085, 1.0))
    assert strict == free


@pytest.mark.parametrize(("prompts_per_s", "keeps"), [(4000.0, True), (7500.0, False)])
def test_a_target_that_keeps_the_sla_is_worth_more_if_it_serves_what_comes(
    prompts_per_s: float, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its queue grows for as long as the load lasts, and the target stays where it is."""
    model = StepModel(0.01, 1e-4, 0.0, 1e-4, 0.0, 0.0)
    work = Demand(np.full(50, 2000.0), prompts_per_s, 0.01)
    noise = np.random.default_rng(1).normal(1.0, 0.1, 400)
    in_time = in_time_s(np.full(400, 0.05), 0.05 * noise, D)
    found = []
    for worth in (1e-9, 1.0):  # as if late tokens were wanted
        monkeypatch.setattr(target, "BEYOND", worth)
        one = TargetSearch(model, model, work, 300.0)
        found.append(one.targets(in_time, 0.0, D, 0.0085, known=True).now_s)
    assert (found[0] > found[1]) is keeps


ALLOWED = AIM * 0.01


def test_what_came_since_is_a_difference_and_all_of_it_after_a_restart() -> None:
    assert Gaps(10, 3).since(Gaps(4, 1)) == Gaps(6, 2)
    assert Gaps(5, 0).since(Gaps(9, 2)) == Gaps(5, 0)
    assert Gaps(9, 1).since(Gaps(9, 2)) == Gaps(9, 1)


def clock_of(percentile: float = 99) -> ClientFeedback:
    clock = ClientFeedback(percentile)
    assert clock.learn(Gaps(), Gaps()) == 1
    return clock


def held_to(*late_fracs: Iterable[float], engine_frac: float = 0.0) -> list[float]:
    """What steps are held to after each exchange of 1,000 tokens, by the share that left late."""
    clock, left, held = clock_of(), Gaps(), []
    for late_frac in itertools.chain(*late_fracs):
        left = Gaps(left.n + 1000, left.late + round(1000 * late_frac))
        held.append(clock.learn(Gaps(left.n, round(left.n * engine_frac)), left))
    return held


def test_tokens_late_on_their_way_out_take_their_excess_off_the_share() -> None:
    *_, before, last = held_to([0.05] * 60)
    assert before - last == pytest.approx(STEP * (0.05 - ALLOWED))
    assert last < 0.945
    # None late: back at once, by what might have been.
    assert held_to([0.05] * 60, [0.0])[-1] == pytest.approx(last + STEP * ALLOWED)
    # After five minutes all is as before.
    assert held_to([0.05] * 200)[-1] == LEAST
    assert held_to([0.05] * 200, [0.0] * 600)[-1] == 1


def test_what_was_counted_before_it_ran_says_nothing() -> None:
    clock = ClientFeedback(99)
    assert clock.learn(Gaps(10**6, 0), Gaps(10**6, 10**5)) == 1
    assert clock.learn(Gaps(10**6, 0), Gaps(10**6, 10**5)) == 1


@pytest.mark.parametrize("late_frac", [0.05, 0.2])
def test_what_was_late_in_the_engine_already_is_for_its_own_margin(late_frac: float) -> None:
    bursts = random.Random(1)
    lately = [float(bursts.random() < late_frac) for _ in range(4000)]
    assert mean(held_to(lately)[2000:]) == pytest.approx(LEAST, abs=0.03)
    assert mean(held_to(lately, engine_frac=late_frac + 0.01)[2000:]) > 0.97


def test_one_pause_takes_nothing_off() -> None:
    assert held_to([0.0] * 9, [1.0], [0.0] * 9) == [1.0] * 19


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1), st.floats(0, 1)), max_size=200))
def test_the_share_stays_between_its_bounds(exchanges: list[tuple[int, float, float]]) -> None:
    clock, engine, left = ClientFeedback(99), Gaps(), Gaps()
    for n, in_engine, leaving in exchanges:
        engine = Gaps(engine.n + n, engine.late + int(in_engine * n))
        left = Gaps(left.n + n, left.late + int(leaving * n))
        assert LEAST <= clock.learn(engine, left) <= 1


@pytest.mark.parametrize(("jitter_ms", "frac"), [(0.0, 1.0), (4.0, 0.93), (50.0, LEAST)])
def test_it_settles_where_as_many_leave_late_as_may(jitter_ms: float, frac: float) -> None:
    """Steps of just the share of 50 ms; 5% of the tokens wait ``jitter_ms`` longer than others."""
    clock = ClientFeedback(99)
    engine = left = Gaps()
    for _ in range(400):
        step_ms = 50 * clock.itl_frac - 0.5
        late = 50 if step_ms + jitter_ms > 50 else 0
        engine = Gaps(engine.n + 1000, 0)
        left = Gaps(left.n + 1000, left.late + late)
        clock.learn(engine, left)
    assert clock.itl_frac == pytest.approx(frac, abs=0.003)
