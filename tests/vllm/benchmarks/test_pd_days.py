"""Days of autoscaling with roles: what is compared, and that it runs."""

from benchmarks.pd.days import MIX, DayTask, measure_day


def test_a_short_step_in_mix_runs() -> None:
    inside, hours = measure_day(DayTask(MIX, 50.0, 200.0, 1, small=True))
    assert 0.5 < inside <= 1 and 4 < hours < 20
