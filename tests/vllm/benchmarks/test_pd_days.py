"""Days of autoscaling with roles: what is compared, and that it runs."""

import pytest

from benchmarks.pd.days import MIX, DayTask, day_table, measure_day, rows_of_days, tasks_of


def test_each_link_is_compared_with_aggregated_engines() -> None:
    one, two = (DayTask("day-1", 50.0, link, 1) for link in (None, 25.0))
    assert tasks_of(["day-1"], 50.0, [25.0], 1, small=False) == [one, two]
    hours, inside = rows_of_days({one: (0.995, 100.0), two: (0.991, 80.0)})
    assert hours.estimate.value == pytest.approx(0.8) and hours.met
    assert inside.estimate.value == 0.991 and inside.met
    assert "auto, 25 Gbit/s" in day_table({one: (0.995, 100.0), two: (0.991, 80.0)})
    assert not rows_of_days({two: (0.991, 80.0)}) and not day_table({})


def test_a_short_step_in_mix_runs() -> None:
    inside, hours = measure_day(DayTask(MIX, 50.0, 200.0, 1, small=True))
    assert 0.5 < inside <= 1 and 4 < hours < 20
