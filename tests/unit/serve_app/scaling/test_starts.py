"""How long a replica's start takes, by watching."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from serve_app.scaling.starts import GAP_S, LONGEST_S, Starts


def shown(starts: Starts, looks: Sequence[tuple[Any, ...]]) -> Starts:
    """Each look, and the same twice a minute until the next one."""
    for (at_s, *seen), (until_s, *_) in pairwise([*looks, looks[-1]]):
        starts.observe(at_s, *seen)
        while at_s + 30 < until_s:
            at_s += 30
            starts.observe(at_s, *seen)
    return starts


def watched(*looks: tuple[float, int, int], assumed_s: float = 60.0) -> Starts:
    """Starts that were shown (time, current, target)."""
    return shown(Starts(assumed_s), looks)


@pytest.mark.parametrize(
    ("looks", "takes_s"),
    [
        ([(0, 1, 1), (10, 1, 3)], 60),  # until one was seen: what is assumed
        ([(0, 1, 1), (10, 1, 2), (50, 1, 2), (110, 2, 2)], 100),  # from the ask to the replica
        # The oldest ask gets the first replica; the median of 100 and 140.
        ([(0, 1, 1), (10, 1, 2), (30, 1, 3), (110, 2, 3)], 100),
        ([(0, 1, 1), (10, 1, 2), (30, 1, 3), (110, 2, 3), (170, 3, 3)], 120),
        # An ask that was taken back is forgotten, the last one first.
        ([(0, 1, 1), (10, 1, 3), (20, 1, 1), (30, 1, 2), (80, 2, 2)], 50),
        ([(0, 1, 1), (10, 1, 2), (60, 1, 3), (70, 1, 2), (110, 2, 2)], 100),
        # A replica that died is asked for when it is missed.
        ([(0, 3, 3), (50, 2, 3), (90, 3, 3)], 40),
        ([(0, 1, 2), (5000, 2, 2)], LONGEST_S),  # none is planned for longer
    ],
)
def test_how_long_a_start_takes(looks: Any, takes_s: float) -> None:
    assert watched(*looks).takes_s == takes_s


def test_one_that_waited_for_a_machine_is_not_the_rule() -> None:
    looks = [(0.0, 0, 0)]
    for took_s in (100.0, 90.0, 4000.0, 110.0):
        at_s, up, _ = looks[-1]
        looks += [(at_s, up, up + 1), (at_s + took_s, up + 1, up + 1)]
    assert watched(*looks).takes_s == pytest.approx(105)


def test_a_start_in_which_the_clock_went_back_is_not_learned() -> None:
    starts = watched((1000, 1, 1), (1010, 1, 3), (10, 1, 3), (50, 2, 3))
    assert not starts.learned
    assert starts.next_s(50) == 60  # it is unknown since when the other one is coming
    starts.observe(60, 2, 4)
    starts.observe(100, 4, 4)
    assert starts.takes_s == 40


def test_what_was_coming_at_the_first_look_is_on_its_way_since_nobody_knows_when() -> None:
    # A controller that was started again: its replicas run, and it finds them one by one.
    again = Starts(100.0)
    for look in ((0, 0, 10), (5, 10, 10)):
        again.observe(*look)
    assert (again.learned, again.takes_s) == (False, 100)
    # A policy that was configured anew while one was on its way.
    anew = Starts(100.0)
    for look in ((0, 9, 10), (10, 10, 10), (20, 10, 11), (60, 10, 11), (90, 11, 11)):
        anew.observe(*look)
    assert anew.takes_s == 70


def named(*looks: tuple[float, str, int]) -> Starts:
    """Starts that were shown (time, a letter for each replica that runs, target)."""
    return shown(Starts(60.0), [(at_s, len(ran), to, frozenset(ran)) for at_s, ran, to in looks])


def test_a_replica_that_was_out_for_a_moment_has_not_started() -> None:
    flaps = [(now_s, "a" if now_s % 2 else "ab", 2) for now_s in range(20)]
    assert not named(*flaps).learned
    assert named(*flaps, (20, "a", 2), (100, "ac", 2)).takes_s == 81  # it is missed at 19


@pytest.mark.parametrize(("gap_s", "learned"), [(GAP_S, True), (GAP_S + 1, False), (3600, False)])
def test_a_start_in_which_the_clock_was_set_ahead_is_not_learned(
    gap_s: float, learned: bool
) -> None:
    starts = Starts(60.0)
    for look in ((1000, 1, 1), (1010, 1, 2), (1010 + gap_s, 1, 2), (1050 + gap_s, 2, 2)):
        starts.observe(*look)
    assert starts.learned is learned
