import numpy as np
import pytest

from benchmarks.fleet.counts import Change, Counts, apart_s, replica_s, starts_s

UP_AND_DOWN = Counts.of([(-5.0, 1), (10.0, 4), (40.0, 1)])


def test_each_number_holds_until_the_next() -> None:
    times = np.array([-9.0, 0.0, 9.9, 10.0, 39.9, 40.0, 99.0])
    assert UP_AND_DOWN.at(times).tolist() == [1, 1, 1, 4, 4, 1, 1]


def test_replica_seconds_are_the_area_from_zero_on() -> None:
    assert replica_s(UP_AND_DOWN, 50.0) == 10 + 30 * 4 + 10
    assert replica_s(UP_AND_DOWN, 20.0) == 10 + 10 * 4
    assert replica_s(UP_AND_DOWN, 5.0) == 5.0


def test_two_are_as_far_apart_as_the_area_between_them_in_either_direction() -> None:
    later = Counts.of([(0.0, 1), (15.0, 4), (38.0, 1)])
    assert apart_s(UP_AND_DOWN, later, 50.0) == 5 * 3 + 2 * 3
    assert apart_s(later, UP_AND_DOWN, 50.0) == 5 * 3 + 2 * 3
    assert apart_s(later, later, 50.0) == 0.0


def test_numbers_after_ticks_hold_from_each_ticks_end() -> None:
    ticked = Counts.of_ticks(1, np.array([1, 3, 3, 2]), tick_s=2.0)
    assert ticked.changes(99.0) == [Change(4.0, 1, 3), Change(8.0, 3, 2)]


def test_changes_are_those_after_zero_and_before_the_end() -> None:
    seen = Counts.of([(-3.0, 0), (-1.0, 1), (2.0, 1), (7.0, 2), (30.0, 1)])
    assert seen.changes(30.0) == [Change(7.0, 1, 2)]
    assert str(seen.changes(30.0)[0]) == "7 s: 1 to 2"


@pytest.mark.parametrize("samples", [[], [(1.0, 1), (0.5, 2)]])
def test_no_sample_and_time_that_goes_back_are_refused(samples: list[tuple[float, int]]) -> None:
    with pytest.raises(ValueError, match="time"):
        Counts.of(samples)


def test_starts_are_matched_with_what_was_wanted_first() -> None:
    wanted = Counts.of([(0.0, 1), (10.0, 2), (12.0, 4)])
    running = Counts.of([(0.0, 0), (3.0, 1), (40.0, 2), (45.0, 4)])
    assert starts_s(wanted, running) == [3.0, 30.0, 33.0, 33.0]


def test_a_start_that_was_called_off_is_none_and_the_newest_goes() -> None:
    wanted = Counts.of([(0.0, 1), (10.0, 2), (12.0, 3), (20.0, 2), (50.0, 1), (60.0, 2)])
    running = Counts.of([(0.0, 1), (40.0, 2), (50.0, 1), (85.0, 2)])
    assert starts_s(wanted, running) == [30.0, 25.0]


def test_a_replica_that_nobody_asked_for_is_no_start() -> None:
    assert starts_s(Counts.of([(0.0, 1)]), Counts.of([(0.0, 1), (5.0, 2)])) == []
