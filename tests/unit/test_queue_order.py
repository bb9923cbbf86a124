"""Stepping aside: who can still be in time goes first, nobody is forgotten."""

from collections import deque
from dataclasses import dataclass

from replicas.queue_order import SCANNED, TURN, StepAside


@dataclass
class Waiting:
    name: str
    arrival_time: float
    num_tokens: int = 100
    num_computed_tokens: int = 0
    num_output_tokens: int = 0


def names(queue: deque[Waiting]) -> str:
    return "".join(one.name for one in queue)


def test_in_time_nobody_moves() -> None:
    queue = deque([Waiting("a", 0.0), Waiting("b", 1.0)])
    StepAside(5.0).reorder(queue, 4.0)
    assert names(queue) == "ab"


def test_the_late_go_behind_those_who_can_be_in_time_and_keep_their_order() -> None:
    queue = deque([Waiting("a", 0.0), Waiting("b", 0.5), Waiting("c", 4.0), Waiting("d", 5.0)])
    StepAside(5.0).reorder(queue, 6.0)
    assert names(queue) == "cdab"


def test_where_all_are_late_the_oldest_stays_first() -> None:
    queue = deque([Waiting("a", 0.0), Waiting("b", 0.5)])
    StepAside(5.0).reorder(queue, 60.0)
    assert names(queue) == "ab"


def test_a_long_prompt_is_late_before_its_time_is_up() -> None:
    queue = deque([Waiting("a", 0.0, num_tokens=9000), Waiting("b", 0.1)])
    aside = StepAside(5.0)
    aside.observe(1000, 1.0, 1)  # 1,000 prompt tokens a second
    aside.reorder(queue, 1.0)
    assert names(queue) == "ba"


def test_a_preempted_request_keeps_its_place() -> None:
    queue = deque([Waiting("a", 0.0, num_output_tokens=7), Waiting("b", 9.0)])
    StepAside(5.0).reorder(queue, 10.0)
    assert names(queue) == "ab"


def test_one_start_in_twenty_goes_to_the_one_that_waited_longest() -> None:
    aside = StepAside(1.0)
    queue, started, now_s = deque([Waiting("old", 0.0)]), [], 10.0
    for _ in range(3 * TURN):
        now_s += 0.1
        queue.append(Waiting("new", now_s))
        aside.reorder(queue, now_s)
        started.append(queue.popleft().name)
        aside.observe(100, 0.1, starts=1)
    assert started.count("old") == 1


def test_a_turn_lasts_until_there_is_room_to_start() -> None:
    aside = StepAside(1.0)
    queue, started, now_s = deque([Waiting("old", 0.0)]), [], 10.0
    for step in range(3 * 5 * TURN):
        now_s += 0.1
        room = step % 5 == 0  # in one step of five somebody may start
        if room:
            queue.append(Waiting("new", now_s))
        aside.reorder(queue, now_s)
        if room:
            started.append(queue.popleft().name)
        aside.observe(100, 0.1, starts=int(room))
    assert started.index("old") == TURN


def test_a_turn_is_over_when_its_request_has_left() -> None:
    aside = StepAside(1.0)
    aside.observe(100, 0.1, starts=TURN)
    queue = deque([Waiting("a", 0.0), Waiting("b", 0.1), Waiting("c", 9.9)])
    aside.reorder(queue, 10.0)
    assert names(queue) == "abc"  # the turn of a
    queue.popleft()  # its client hung up
    aside.reorder(queue, 10.0)
    assert names(queue) == "cb"


def test_of_a_long_queue_only_the_front_is_looked_at() -> None:
    queue = deque([*(Waiting("a", 0.0) for _ in range(SCANNED)), Waiting("b", 9.9)])
    StepAside(1.0).reorder(queue, 10.0)
    assert queue[0].name == "a"
    queue.popleft()
    StepAside(1.0).reorder(queue, 10.0)
    assert queue[0].name == "b"
