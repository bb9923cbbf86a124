"""Stepping aside: who can still be in time goes first, nobody is forgotten."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from replicas.engine.queue_order import LATE_EVERY, Demotions, Lane, SortedLane


@dataclass(eq=False)
class Waiting:
    name: str
    arrival_time: float
    num_tokens: int = 100
    num_computed_tokens: int = 0
    num_output_tokens: int = 0

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


@KINDS
def test_where_all_are_late_the_oldest_stays_first(kind: type[Lane]) -> None:
    aside = Demotions(5.0)
    lane = lane_of(aside, [Waiting("a", 0.0), Waiting("b", 0.5)], kind)
    assert turn(lane, aside, 60.0) == "ab"
    assert lane.peek().name == "a"


def test_exactly_in_time_is_in_time() -> None:
    aside = Demotions(5.0)
    lane = lane_of(aside, [Waiting("a", 1.0), Waiting("b", 2.0)])
    assert turn(lane, aside, 6.0) == "ab"
    assert turn(lane, aside, 6.001) == "ba"


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


def test_the_prefill_rate_follows_the_last_twenty_steps() -> None:
    aside = Demotions(5.0)
    aside.observe(1000, 1.0, 1000)
    aside.observe(0, 1.0, 0)  # no prompt: says nothing of it
    aside.observe(3000, 1.0, 3000)
    assert aside._tokens_per_s == pytest.approx(1000 + 0.05 * 2000)


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


@pytest.mark.parametrize("tokens", [100, 2000])
def test_a_late_prompt_waits_for_twenty_times_its_own_tokens(tokens: int) -> None:
    aside = Demotions(1.0)
    lane = lane_of(aside, [Waiting("old", 0.0, tokens), Waiting("new", 9.9)])
    assert turn(lane, aside, 10.0) == "newold"
    aside.observe(LATE_EVERY * tokens - 1, 0.1, LATE_EVERY * tokens - 1)
    assert turn(lane, aside, 10.0) == "newold"
    aside.observe(1, 0.1, 1)
    assert turn(lane, aside, 10.0) == "oldnew"


def test_a_turn_lasts_until_there_is_room_to_start() -> None:
    aside = Demotions(1.0)
    lane, started, now_s = lane_of(aside, [Waiting("old", 0.0)]), [], 10.0
    for step in range(3 * 5 * LATE_EVERY):
        now_s += 0.1
        room = step % 5 == 0  # in one step of five somebody may start
        if room:
            lane.add(Waiting("new", now_s))
        turn(lane, aside, now_s)
        if room:
            started.append(lane.pop().name)
        aside.observe(100 * room, 0.1, 100 * room)
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


def test_one_that_comes_back_does_not_take_a_turn_away() -> None:
    aside = Demotions(1.0)
    lane = lane_of(aside, [Waiting("a", 0.0), Waiting("c", 9.9)])
    turn(lane, aside, 10.0)
    aside.observe(100 * LATE_EVERY, 0.1, 100 * LATE_EVERY)
    assert turn(lane, aside, 10.0) == "ac"
    lane.prepend(Waiting("p", 0.0, num_output_tokens=3))
    assert turn(lane, aside, 10.0) == "pac"
    lane.pop()
    assert turn(lane, aside, 10.0) == "ac"


@KINDS
def test_however_many_are_late_those_in_time_go_first(kind: type[Lane]) -> None:
    # 5,000 late ones at the front; before, nothing was done from 2,048 on.
    aside = Demotions(1.0)
    lane = lane_of(aside, [Waiting("late", 0.0) for _ in range(5000)], kind)
    lane.add(Waiting("new", 9.9))
    turn(lane, aside, 10.0)
    assert lane.pop().name == "new"
    assert len(lane) == 5000


def test_each_request_is_looked_at_once_after_it_was_found_late() -> None:
    looked = []

    class Counted(Demotions):
        def late(self, request: Waiting) -> bool:  # type: ignore[override]
            looked.append(request.name)
            return super().late(request)

    aside = Counted(1.0)
    lane = lane_of(aside, [Waiting("late", 0.0) for _ in range(100)])
    for step in range(100):
        lane.add(Waiting("new", 10.0 + step))
        turn(lane, aside, 10.0 + step)
        assert lane.pop().name == "new"
    assert looked.count("late") == 100


def test_a_step_without_a_duration_says_nothing_of_the_rate() -> None:
    aside = Demotions(5.0)
    aside.observe(1000, 0.0, 1000)
    assert aside._tokens_per_s == 0
    aside.observe(1000, 0.5, 1000)
    assert aside._tokens_per_s == 2000


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


def test_restored_a_returned_one_goes_first_and_the_next_late_one_stands_as_all_others() -> None:
    aside = Demotions(5.0)
    lane = lane_of(aside, [Waiting("a", 0.0), Waiting("b", 0.5), Waiting("c", 6.0)])
    turn(lane, aside, 6.0)
    aside.tokens = 100 * LATE_EVERY
    assert turn(lane, aside, 6.0) == "acb"  # a has its turn
    lane.prepend(Waiting("back", 1.0, num_output_tokens=1))
    lane.add_late([Waiting("passed over", 0.2)])
    lane.restore()
    assert [one.name for one in lane] == ["passed over", "back", "a", "b", "c"]
    # On again: the next turn is that of whoever waits longest, not still a's.
    aside.tokens = 100 * LATE_EVERY
    turn(lane, aside, 6.0)
    assert lane.peek().name == "passed over"


def test_restored_nothing_is_kept_of_those_that_left() -> None:
    aside = Demotions(5.0)
    waiting = [Waiting("a", 0.0), Waiting("b", 0.5), Waiting("c", 4.0)]
    lane = lane_of(aside, waiting)
    turn(lane, aside, 6.0)
    lane.pop()
    lane.discard(waiting[:1])
    lane.restore()
    assert names(lane) == "b"
    lane.pop()
    lane.restore()
    assert (names(lane), lane._order) == ("", {})
