"""Priorities of clients' own: a bounded number of levels, in their order."""

import random

from hypothesis import given
from hypothesis import strategies as st

from controller.classes import MOST_PRIORITY
from replicas.admission.waiting import level_of
from tests.unit.replicas.admission.builders import admission, asked

priorities = st.integers(-MOST_PRIORITY, MOST_PRIORITY)


@given(st.sets(priorities, min_size=1, max_size=5), st.lists(priorities, min_size=2, max_size=50))
def test_levels_keep_the_order_of_priorities_and_the_classes_own(classes, named) -> None:
    known = sorted(classes)
    assert [level_of(one, known) for one in known] == known
    named = sorted(named)
    levels = [level_of(one, known) for one in named]
    assert levels == sorted(levels)
    assert all(level <= one for level, one in zip(levels, named, strict=True))


def test_those_next_to_a_class_are_apart() -> None:
    assert [level_of(p, [0, 10]) for p in range(-4, 16)] == [
        *(-7, -3, -3, -1, 0, 1, 2, 2, 4, 4, 4, 4, 8, 8, 10, 11, 12, 12, 14, 14)
    ]


def test_however_many_priorities_clients_name_few_are_counted() -> None:
    draw = random.Random(1)
    made = admission(slots=8, max_waiting=100)
    for step in range(5000):
        now_s = step / 1000
        one = asked("gold", now_s, priority=draw.randint(-MOST_PRIORITY, MOST_PRIORITY))
        if made.check(one, 10, now_s, 0.0) is None:
            made.let_in(one, 10, now_s)
    most = 32 * (len(made.classes.by_name) + 1)
    waiting = made.waiting
    assert max(len(waiting._arrivals), len(waiting._ranks), len(made._comeback_s)) <= most
