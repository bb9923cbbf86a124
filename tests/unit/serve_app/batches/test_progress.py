"""When a batch ends at the present rate, and whether that is in its window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.batches.progress import LONGEST_S, Progress

WINDOW_S = 24_000.0  # its rate is measured over 1,000 s


def after(lines: int, per_s: float, took_s: int, every_s: int = 20) -> tuple[Progress, float]:
    """A batch that began at 0 and had so many answers a second until then."""
    batch, done = Progress(lines, WINDOW_S, WINDOW_S, 0.0), 0
    for now_s in range(0, took_s + 1, every_s):
        while done < min(int(now_s * per_s), lines):
            batch.answered()
            done += 1
        batch.late(now_s, done)
    return batch, float(took_s)


def test_a_batch_is_late_where_the_rest_takes_longer_than_its_window() -> None:
    slow, now_s = after(3000, 0.1, 2000)  # 2,800 are left at 0.1/s, and 22,000 s
    assert slow.late(now_s, 200)
    assert abs((slow.end_s(now_s, 200) or 0.0) - 28_000) < 300
    fast, now_s = after(2000, 0.1, 2000)
    assert not fast.late(now_s, 200)


@pytest.mark.parametrize(("left_s", "known_s"), [(3000.0, 125), (12.0, 1), (-5.0, 1)])
def test_after_a_restart_the_rate_is_known_in_time(left_s: float, known_s: int) -> None:
    batch = Progress(10_000, left_s, 86_400.0, 0.0)
    assert [batch.late(float(k), 0) for k in range(known_s + 1)] == [False] * known_s + [True]


@given(st.integers(1, 500), st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_a_forecast_is_from_now_to_a_year_and_none_are_left_at_the_end(
    lines: int, answers: list[int]
) -> None:
    batch = Progress(lines, WINDOW_S, WINDOW_S, 0.0)
    for k, done in enumerate(answers):
        for _ in range(min(done, batch.left)):
            batch.answered()
        answers = lines - batch.left
        end_s = batch.end_s(100.0 * k, answers)
        assert end_s is None or 0 <= end_s <= LONGEST_S
        assert (end_s is None) == (k < 10)
        assert not (batch.late(100.0 * k, answers) and not batch.left and end_s == 0)


@pytest.mark.parametrize(("lines", "other", "ends_s"), [(720, 5400, 14_400), (5400, 720, 61_200)])
def test_batches_that_share_slots_are_forecast_by_the_rate_of_both(
    lines: int, other: int, ends_s: float
) -> None:
    batch = Progress(lines, 86_400, 86_400, 0.0)
    batch.end_s(0.0, 0)
    assert batch.end_s(3600.0, 360, [other]) == pytest.approx(ends_s)  # 0.1/s in turns
