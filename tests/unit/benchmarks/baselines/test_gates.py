"""Rivals that gate admissions: their formulas on small numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.gradient2 import Gradient2
from benchmarks.baselines.new_token_ratio import NewTokenRatio, by_retraction
from benchmarks.baselines.options import (
    Gradient2Options,
    NewTokenRatioOptions,
    PastFutureOptions,
)
from benchmarks.baselines.past_future import MovingAverage, PastFuture, draw_longer, peak
from controller.records import StepSample
from tests.rivals import ENGINE, columns, decode, prefill, seen


@given(rows=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 80)), min_size=1, max_size=8))
def test_the_peak_is_the_fullest_step(rows: list[tuple[int, int]]) -> None:
    held, left = (np.array(column) for column in zip(*rows, strict=True))
    # In its last step a request still holds its memory.
    fullest = max(sum(h + t for h, n in rows if t <= n) for t in {n for _, n in rows})
    assert peak(held, left) == fullest


def test_the_moving_average_is_quick_at_first() -> None:
    average = MovingAverage()
    average.add(100)
    assert average.tokens == 1074  # (2048 + 100) / 2
    average.add(100)
    assert average.tokens == 684  # 0.6 x 1074 + 0.4 x 100
    for _ in range(500):
        average.add(1)
    assert average.tokens == 64


def test_past_future_by_the_average_starts_what_fits_at_the_peak() -> None:
    rival = PastFuture(PastFutureOptions(lengths="average"))
    for _ in range(200):
        rival.finished(200)
    assert rival.average.tokens == 200
    engine = replace(ENGINE, kv_tokens=1000)
    # Each holds 101 and has 1 + 200 - 0 - 1 + 6 = 206 to go: 307, 614, 921, 1228.
    view = seen([], [prefill(100)] * 5, engine=engine)
    assert rival.decide(view).starts == 3
    # Busy, it counts with all 1,000 that each may generate.
    busy = seen([], [prefill(100)] * 5, engine=engine, free=100)
    assert rival.decide(busy).starts == 0
    always = PastFuture(PastFutureOptions(lengths="average", busy_frac=0))
    assert always.decide(view).starts == 0


def test_past_future_draws_from_the_past() -> None:
    rival = PastFuture(PastFutureOptions(reserved_frac=0, window=10))
    for _ in range(10):
        rival.finished(200)
    view = seen([], [prefill(100)] * 5, engine=replace(ENGINE, kv_tokens=1000))
    assert rival.decide(view).starts == 3  # nothing is random: as by the average
    reserved = PastFuture(PastFutureOptions(reserved_frac=0.1, window=10))
    for _ in range(10):
        reserved.finished(200)
    assert reserved.decide(view).starts == 2


@pytest.mark.parametrize(
    ("generated", "u", "output"),
    [
        (0, 0.0, 0),
        (0, 0.25, 100),  # a quarter of the way over 0, 100, 200, 300 and 1000
        (0, 0.5, 200),
        (0, 0.875, 650),
        (150, 0.0, 150),
        (150, 1 / 3, 200),
        (150, 2 / 3, 300),
        (300, 0.5, 650),  # nobody was longer
    ],
)
def test_an_output_is_drawn_among_those_that_were_longer(
    generated: int, u: float, output: int
) -> None:
    past = np.array([100, 200, 300])
    drawn = draw_longer(past, np.array([generated]), np.array([1000]), np.array([u]))
    assert drawn.tolist() == [output]


def test_the_ratio_falls_to_its_least_and_begins_again_where_nothing_runs() -> None:
    rival = NewTokenRatio(NewTokenRatioOptions())
    assert rival.ratio == 0.7
    rival.decide(seen([decode()], []))
    assert rival.ratio == pytest.approx(0.7 - 0.602 / 600)
    for _ in range(700):
        rival.decide(seen([decode()], []))
    assert rival.ratio == pytest.approx(0.098)
    rival.decide(seen([], []))
    assert rival.ratio == 0.7


def test_after_a_retraction_the_ratio_is_what_the_batch_has_shown() -> None:
    rival = NewTokenRatio(NewTokenRatioOptions())
    rival.preempted()
    rival.decide(seen([decode(generated=50), decode(generated=110), prefill(10)], []))
    assert rival.ratio == pytest.approx((160 + 40) / 2001)


def test_new_token_ratio_reserves_a_share_of_the_running_and_all_of_who_starts() -> None:
    rival = NewTokenRatio(NewTokenRatioOptions(first=0.5, least_frac=1.0))
    engine = replace(ENGINE, kv_tokens=3000)
    running = [decode(100, 200)]  # holds 299, 800 to go: 400 are reserved, 2,301 left
    view = seen(running, [prefill(100)] * 5, engine=engine)
    assert rival.decide(view).starts == 2  # 100 + 1000 + 16 each
    ratio = NewTokenRatio(NewTokenRatioOptions(first=0.5, least_frac=1.0, newcomers="ratio"))
    assert ratio.decide(view).starts == 3  # 100 + 500 + 16


def test_last_stands_who_is_retracted_first() -> None:
    batch = [decode(100, 5), prefill(10), decode(50, 5), decode(900, 80)]
    assert by_retraction(columns(batch)) == [3, 2, 0, 1]


def limit_after(short_s: list[float], running: int, **options: float) -> float:
    rival = Gradient2(Gradient2Options.model_validate(options), 256)
    for one in short_s:
        rival.update(one, running)
    return rival.limit


def test_gradient2_grows_by_its_queue_while_steps_stay_as_they_are() -> None:
    assert limit_after([0.03], 20) == pytest.approx(20 + 0.2 * 4)
    assert limit_after([0.03] * 2, 21) == pytest.approx(21.6)
    assert limit_after([0.03] * 1000, 256) == 200
    assert limit_after([0.03], 9) == 20  # fewer than half of it run


def test_gradient2_shrinks_where_steps_take_longer() -> None:
    # Long average of two: 45 ms, 1.5 x 45 / 60 is more than 1.
    assert limit_after([0.03, 0.06], 100, first=100) == pytest.approx(101.6)
    # 1.0 x 45 / 60 = 0.75: 0.8 x 100.8 + 0.2 x (75.6 + 4)
    held = limit_after([0.03, 0.06], 100, first=100, tolerance=1.0)
    assert held == pytest.approx(0.8 * 100.8 + 0.2 * (0.75 * 100.8 + 4))
    # No less than half at once.
    assert limit_after([0.01] * 10 + [1.0], 200, first=100, tolerance=0.1) >= 0.9 * 40


def test_gradient2_measures_windows_of_a_second() -> None:
    rival = Gradient2(Gradient2Options(), 256)
    for k in range(1, 20):
        rival.observe(StepSample(10, 0, 0, 0, 0.05), 20, 0.05 * k)
        assert rival.limit == 20
    rival.observe(StepSample(10, 0, 0, 0, 0.05), 20, 1.0)
    assert rival.limit == pytest.approx(20.8)
    assert rival.decide(seen([decode()] * 15, [prefill(5)] * 9)).starts == 5
