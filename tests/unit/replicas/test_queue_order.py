"""Stepping aside: requests that can be in time go first, none is forgotten; decodes first."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from replicas.engine.batch_counts import decodes_first
from replicas.engine.queue_order import LATE_EVERY, Demotions, Lane, SortedLane


@dataclass(eq=False)
class Waiting:
    name: str
    arrival_time: float
    num_tokens: int = 100
    num_computed_tokens: int = 0
    num_output_tokens: int = 0

    @property
    def request_id(self) -> str:
        return self.name

    def __lt__(self, other: "Waiting") -> bool:
        return self.arrival_time < other.arrival_time


def lane_of(aside: Demotions, requests: Iterable[Waiting], kind: type[Lane] = Lane) -> Lane:
    lane = kind(aside)
    for request in requests:
        lane.add(request)
    return lane


def names(lane: Lane) -> str:
    assert len(lane) == len(list(lane))
    return "".join(one.name for one in lane)


def turn(lane: Lane, aside: Demotions, now_s: float) -> str:
    aside.now_s = now_s
    lane.reorder()
    return names(lane)


def test_one_that_ran_in_an_engine_that_died_is_never_late() -> None:
    aside = Demotions(5.0)
    aside.now_s = 9.0
    assert aside.late(Waiting("a", 0.0))
    assert not aside.late(Waiting("a-0a1b2c3d-moved-7", 0.0))


KINDS = pytest.mark.parametrize("kind", [Lane, SortedLane])


@KINDS
def test_the_late_go_behind_those_that_can_be_in_time_and_keep_their_order(kind):
    aside = Demotions(5.0)
    waiting = [Waiting("a", 0.0), Waiting("b", 0.5), Waiting("c", 4.0), Waiting("d", 5.0)]
    lane = lane_of(aside, waiting, kind)
    assert turn(lane, aside, 5.0) == "abcd"
    assert turn(lane, aside, 6.0) == "cdab"
    lane.add(Waiting("e", 5.9))
    assert turn(lane, aside, 6.0) == "cdeab"
    assert [lane.pop().name for _ in range(5)] == list("cdeab")


def test_a_long_prompt_is_late_before_its_time_is_up() -> None:
    aside = Demotions(5.0)
    aside.observe(1000, 1.0, 1000)  # 1,000 prompt tokens a second
    lane = lane_of(aside, [Waiting("a", 0.0, num_tokens=9000), Waiting("b", 0.1)])
    assert turn(lane, aside, 1.0) == "ba"


def test_what_the_prefix_cache_holds_of_a_prompt_takes_no_time() -> None:
    held = {"a": 8500, "c": 4000}
    aside = Demotions(5.0, cached=lambda request: held.get(request.name, 0))
    aside.observe(1000, 1.0, 1000)
    long = [Waiting(name, 0.0, num_tokens=9000) for name in "abc"]
    assert turn(lane_of(aside, long), aside, 1.0) == "abc"  # a is in time, so none is looked at
    assert turn(lane_of(aside, long[1:]), aside, 1.0) == "bc"  # 9 s and 5 s, of the 4 s left
    lane = lane_of(aside, [*long[1:], long[0]])
    assert turn(lane, aside, 1.0) == "abc"
    assert turn(lane_of(aside, [long[0], Waiting("d", 4.6)]), aside, 5.1) == "da"


@KINDS
def test_who_holds_kv_memory_does_not_wait_with_it_for_others(kind: type[Lane]) -> None:
    aside = Demotions(5.0)
    aside.observe(1000, 1.0, 1000)
    session = Waiting("a", 0.0, num_tokens=9000, num_computed_tokens=5000)
    lane = lane_of(aside, [session, Waiting("b", 0.0), Waiting("c", 8.0)], kind)
    assert turn(lane, aside, 9.0) == "abc"
    lane.pop()
    assert turn(lane, aside, 9.0) == "cb"


@KINDS
def test_a_preempted_request_keeps_its_place(kind: type[Lane]) -> None:
    aside = Demotions(5.0)
    lane = lane_of(aside, [Waiting("b", 9.0)], kind)
    lane.prepend(Waiting("a", 0.0, num_output_tokens=7))
    assert turn(lane, aside, 10.0) == "ab"


@KINDS
def test_one_prompt_token_in_twenty_goes_to_the_one_that_waited_longest(kind: type[Lane]) -> None:
    aside = Demotions(1.0)
    lane, started, now_s = lane_of(aside, [Waiting("old", 0.0)], kind), [], 10.0
    for _ in range(3 * LATE_EVERY):
        now_s += 0.1
        lane.add(Waiting("new", now_s))
        turn(lane, aside, now_s)
        started.append(lane.pop().name)
        aside.observe(100, 0.1, 100)
    assert started.count("old") == 1
    assert started.index("old") == LATE_EVERY


@KINDS
def test_a_turn_is_over_when_its_request_has_left(kind: type[Lane]) -> None:
    aside = Demotions(1.0)
    first, second = Waiting("a", 0.0), Waiting("b", 0.1)
    lane = lane_of(aside, [first, second, Waiting("c", 9.9)], kind)
    assert turn(lane, aside, 10.0) == "cab"
    aside.observe(100 * LATE_EVERY, 0.1, 100 * LATE_EVERY)
    assert turn(lane, aside, 10.0) == "acb"  # the turn of a
    lane.discard([first])  # its client hung up
    assert turn(lane, aside, 10.0) == "cb"
    assert aside.tokens == 0


@KINDS
def test_however_many_are_late_those_in_time_go_first(kind: type[Lane]) -> None:
    # 5,000 late ones at the front; before, nothing was done from 2,048 on.
    aside = Demotions(1.0)
    lane = lane_of(aside, [Waiting("late", 0.0) for _ in range(5000)], kind)
    lane.add(Waiting("new", 9.9))
    turn(lane, aside, 10.0)
    assert lane.pop().name == "new"
    assert len(lane) == 5000


@KINDS
def test_restored_all_stand_where_they_came_and_may_step_aside_again(kind):
    aside = Demotions(5.0)
    waiting = [Waiting("a", 0.0), Waiting("b", 0.5), Waiting("c", 4.0), Waiting("d", 5.0)]
    lane = lane_of(aside, waiting, kind)
    assert turn(lane, aside, 6.0) == "cdab"
    lane.add(Waiting("e", 5.9))
    lane.restore()
    assert names(lane) == "abcde"
    lane.pop()
    assert turn(lane, aside, 6.0) == "cdeb"


@pytest.mark.parametrize(
    ("running", "prompts", "order"),
    [
        ("PdQe", "PQ", "dePQ"),
        ("dPe", "P", "deP"),
        ("dePQ", "PQ", None),
        ("QdP", "PQ", "dQP"),
        ("deQP", "PQ", None),
        ("PQ", "PQ", None),
        ("de", "", None),
        ("", "", None),
    ],
)
def test_those_that_decode_come_first_each_in_their_order(running, prompts, order):
    moved = list(running)
    before = decodes_first(moved, list(prompts))
    assert before == (None if order is None else list(running))
    assert moved == list(order or running)
