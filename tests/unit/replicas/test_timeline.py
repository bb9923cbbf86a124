"""Bars of requests on rows, and the last minute of them as the console gets it."""

import json

from controller.classes import parse_classes
from replicas.engine.timeline import MOST_BARS, MOST_WAITING, Timeline
from replicas.server.timeline_link import KEPT_S, NO_CLASS, OWN, STATES, Minute, class_names


def rows(timeline: Timeline, now_s: float) -> dict[str, tuple[str, int]]:
    return {bar[0]: (bar[2], bar[3]) for bar in timeline.drain(now_s)["open"]}


def test_a_request_waits_below_and_runs_on_the_lowest_free_slot() -> None:
    timeline = Timeline()
    for name in "abc":
        timeline.enter(name, 0, "waiting", 1.0)
    assert rows(timeline, 1.0) == {"a": ("waiting", -1), "b": ("waiting", -2), "c": ("waiting", -3)}
    timeline.enter("b", 0, "prefill", 2.0)
    timeline.enter("b", 0, "decode", 3.0)
    timeline.enter("c", 0, "prefill", 3.0)
    assert rows(timeline, 3.0) == {"a": ("waiting", -1), "b": ("decode", 0), "c": ("prefill", 1)}
    timeline.leave("b", 4.0)
    timeline.enter("a", 0, "prefill", 4.0)
    timeline.enter("c", 0, "preempted", 5.0)
    timeline.enter("d", 0, "waiting", 5.0)
    assert rows(timeline, 5.0) == {
        "a": ("prefill", 0),
        "c": ("preempted", -1),
        "d": ("waiting", -2),
    }


def test_what_ended_is_told_once() -> None:
    timeline = Timeline()
    timeline.enter("r-0123456789abcdef", 7, "waiting", 1.0)
    timeline.enter("r-0123456789abcdef", 7, "prefill", 1.0)  # at once: it never waited
    timeline.enter("r-0123456789abcdef", 7, "decode", 2.0)
    assert timeline.drain(3.0) == {
        "now_s": 3.0,
        "closed": [("89abcdef", 7, "prefill", 0, 1.0, 2.0)],
        "open": [("89abcdef", 7, "decode", 0, 2.0, None)],
        "unseen": 0,
    }
    timeline.leave("r-0123456789abcdef", 4.0)
    timeline.leave("nobody", 4.0)
    assert timeline.drain(5.0)["closed"] == [("89abcdef", 7, "decode", 0, 2.0, 4.0)]
    assert timeline.drain(5.0) == {"now_s": 5.0, "closed": [], "open": [], "unseen": 0}


def test_beyond_the_rows_those_that_wait_are_counted() -> None:
    timeline = Timeline()
    for number in range(MOST_WAITING + 3):
        timeline.enter(f"{number:08}", 0, "waiting", 0.0)
    known = timeline.drain(1.0)
    assert (len(known["open"]), known["unseen"]) == (MOST_WAITING, 3)
    timeline.enter(f"{MOST_WAITING + 2:08}", 0, "prefill", 1.0)
    timeline.leave("00000000", 1.0)
    timeline.enter("late", 0, "waiting", 1.0)
    known = timeline.drain(1.0)
    assert (len(known["open"]), known["unseen"]) == (MOST_WAITING + 1, 2)


def test_nothing_grows_where_nobody_asks() -> None:
    timeline = Timeline()
    for number in range(MOST_BARS + 10):
        timeline.enter("a", 0, "decode", number)
        timeline.leave("a", number + 0.5)
    closed = timeline.drain(1e9)["closed"]
    assert (len(closed), closed[0][4]) == (MOST_BARS, 10)


def drained(now_s: float, closed: list[tuple], opened: list[tuple] = ()) -> dict:
    return {"now_s": now_s, "closed": closed, "open": opened, "unseen": 0}


def test_a_minute_is_kept_in_seconds_ago() -> None:
    minute = Minute()
    assert minute.take(drained(100.0, []))["recorded_s"] == 0.0
    answer = minute.take(
        drained(130.0, [("a", 0, "decode", 0, 101.0, 110.0)], [("b", 0, "prefill", 1, 125.0, None)])
    )
    assert answer == {
        "recorded_s": 30.0,
        "states": STATES,
        "classes": [NO_CLASS],
        "bars": [["a", 0, 2, 0, 29.0, 20.0], ["b", 0, 1, 1, 5.0, None]],
        "unseen": 0,
    }
    later = minute.take(drained(170.5, [], [("b", 0, "decode", 1, 126.0, None)]))
    assert later["recorded_s"] == KEPT_S
    assert later["bars"] == [["b", 0, 2, 1, 44.5, None]]
    assert json.loads(json.dumps(later, allow_nan=False))


def test_of_more_than_can_be_kept_it_says_how_far_back_they_go() -> None:
    minute = Minute()
    minute.take(drained(0.0, []))
    many = [("a", 0, "decode", 0, n / 100, (n + 1) / 100) for n in range(MOST_BARS + 500)]
    answer = minute.take(drained(45.0, many))
    assert len(answer["bars"]) == MOST_BARS
    assert answer["recorded_s"] == 39.99  # the oldest that is left ended at 5.01 s


def test_a_class_is_known_by_its_priority() -> None:
    classes = parse_classes(
        {"gold": {"priority": 0}, "even": {"priority": 5, "default": True}, "odd": {"priority": 5}}
    )
    names = class_names(classes)
    assert [names(priority) for priority in (0, 5, 7)] == ["gold", "even, odd", OWN]
    assert class_names(None)(3) == NO_CLASS


def test_a_class_keeps_its_place_once_it_was_seen() -> None:
    minute, names = Minute(), {0: "gold", 5: "silver"}.__getitem__
    first = minute.take(drained(1.0, [], [("a", 5, "decode", 0, 0.0, None)]), names)
    assert (first["classes"], first["bars"][0][1]) == (["silver"], 0)
    both = [("b", 0, "decode", 1, 1.5, None), ("a", 5, "decode", 0, 0.0, None)]
    second = minute.take(drained(2.0, [], both), names)
    assert (second["classes"], [bar[1] for bar in second["bars"]]) == (["silver", "gold"], [1, 0])
