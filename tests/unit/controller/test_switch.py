"""The table of switches: the newest of each scope, whatever the order and the clocks."""

from itertools import permutations

import pytest

from controller.switch import Switch, is_on, merged, next_switch

OFF, ON = Switch(5, False), Switch(9, True)
A_ON, A_OFF = Switch(7, True, "a"), Switch(8, False, "a")


@pytest.mark.parametrize(
    ("switches", "a", "b"),
    [
        ((OFF,), False, False),
        ((OFF, A_ON), True, False),
        ((OFF, A_ON, A_OFF), False, False),
        ((OFF, A_ON, A_OFF, ON), True, True),
        ((A_OFF,), False, True),
    ],
)
def test_of_a_switch_for_a_group_and_one_for_all_the_newer_holds(switches, a, b):
    for order in permutations(switches):
        assert (is_on(order, "a"), is_on(order, "b")) == (a, b)
        assert (is_on(merged(order), "a"), is_on(merged(order), "b")) == (a, b)


def test_what_a_later_one_for_all_overrules_is_dropped() -> None:
    assert merged((A_OFF, OFF)) == (OFF, A_OFF)
    assert merged((ON,), (A_OFF, OFF)) == (ON,)


def test_of_two_at_the_same_moment_off_holds() -> None:
    both = (Switch(5, True), Switch(5, False))
    assert merged(both) == merged(both[::-1]) == (Switch(5, False),)
    mixed = (Switch(5, True), Switch(5, False, "a"))
    assert merged(mixed) == mixed
    assert not is_on(mixed, "a")
    assert not is_on((Switch(5, False), Switch(5, True, "a")), "a")


@pytest.mark.parametrize(("unix_s", "epoch_ms"), [(2.5, 2500), (0.004, 10), (-1e9, 10)])
def test_the_next_is_newer_than_all_that_is_known_whatever_the_clock_says(unix_s, epoch_ms):
    made = next_switch((OFF, ON), enforce=False, group="a", unix_s=unix_s)
    assert made == Switch(epoch_ms, False, "a")
    assert next_switch((), enforce=True, group=None, unix_s=1.0) == Switch(1000, True)
