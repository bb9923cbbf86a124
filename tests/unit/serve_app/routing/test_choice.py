"""Which replica is chosen, and what a router counts of its own."""

from collections import Counter
from typing import Any

import pytest

from serve_app.routing.choice import FLIGHT_S, HeadroomChooser
from serve_app.routing.held import AGAIN, Prefix
from tests.unit.serve_app.routing.rooms import ASKED, NOW_S, chooser, room


def sent_to(made: HeadroomChooser[str], names: str, n: int) -> Counter[str]:
    """Who gets how many of these, if each counts as sent."""
    taken = Counter[str]()
    for _ in range(n):
        name = made.choose(names, ASKED, NOW_S).replica
        made.sent(name, ASKED, NOW_S)
        taken[name] += 1
    return taken


def test_what_was_sent_counts_until_newer_figures_have_it() -> None:
    made = chooser({"a": room(), "b": room(prompt_backlog_tokens=300)})
    assert made.choose("ab", ASKED, NOW_S).replica == "a"
    made.sent("a", ASKED, NOW_S)
    assert made.choose("ab", ASKED, NOW_S).replica == "b"
    # Older figures do not include it.
    made.update("a", room(NOW_S + FLIGHT_S / 2), NOW_S + 0.5)
    assert made.choose("ab", ASKED, NOW_S + 0.5).replica == "b"
    # Later ones include it.
    made.update("a", room(NOW_S + 0.6, prompt_backlog_tokens=100), NOW_S + 1)
    assert made.choose("ab", ASKED, NOW_S + 1).replica == "a"


def test_what_was_taken_back_does_not_count_whenever_that_comes() -> None:
    made = chooser({"a": room(), "b": room(prompt_backlog_tokens=300)})
    sent = made.sent("a", ASKED, NOW_S)
    made.take_back("a", sent)
    assert made.choose("ab", ASKED, NOW_S).replica == "a"
    late = made.sent("a", ASKED, NOW_S)
    made.update("a", room(NOW_S + 1), NOW_S + 1)
    made.take_back("a", late)  # its figures had it already
    made.take_back("gone", late)
    assert made.choose("ab", ASKED, NOW_S + 1).wait_s == pytest.approx(0.5)


def test_old_figures_of_all_leave_what_was_sent_lately_and_then_the_draw() -> None:
    made = chooser({"a": room(), "b": room(prompt_backlog_tokens=9000)})
    later_s = NOW_S + 6
    made.sent("a", ASKED, later_s)
    chosen = made.choose("ab", ASKED, later_s)
    assert (chosen.replica, chosen.outcome, chosen.wait_s) == ("b", "sent", None)
    # What was sent long ago is forgotten, too.
    much_later_s = later_s + 6
    found = [made.choose("ab", ASKED, much_later_s) for _ in range(100)]
    assert {one.outcome for one in found} == {"random"}
    assert min(Counter(one.replica for one in found).values()) > 25


def test_a_new_replica_is_used_at_once_and_not_flooded() -> None:
    made = chooser({"a": room(running=18), "b": room(running=18)})
    assert 8 <= sent_to(made, "abn", 30)["n"] <= 16


@pytest.mark.parametrize("slow", [{"prefill_tokens_per_s": 500.0}, {"led": False}])
def test_a_replica_that_is_slow_or_on_its_own_gets_less(slow: dict[str, Any]) -> None:
    taken = sent_to(chooser({"a": room(**slow), "b": room(), "c": room()}), "abc", 100)
    assert 0 < taken["a"] < 0.8 * min(taken["b"], taken["c"])


SEVEN, EIGHT = Prefix((7,), 500.0), Prefix((8,), 500.0)


def test_a_prefix_stays_where_it_was_as_long_as_a_move_does_not_save_what_it_costs() -> None:
    made = chooser({"a": room(), "b": room(running=12)}, prefix_affinity=True)
    assert made.choose("ab", ASKED, NOW_S, prefix=SEVEN, among="ab").replica == "a"
    busier = room(NOW_S + 1, prompt_backlog_tokens=400)
    made.update("a", busier, NOW_S + 1)
    chosen = made.choose("ab", ASKED, NOW_S + 1, prefix=SEVEN, among="ab")
    assert (chosen.replica, chosen.others, chosen.outcome) == ("a", ("b",), "prefix")
    assert (chosen.wait_s, chosen.cached_tokens) == (pytest.approx(0.4), 500)
    chosen = made.choose("ab", ASKED, NOW_S + 1, prefix=EIGHT, among="ab")
    assert (chosen.replica, chosen.outcome, chosen.cached_tokens) == ("b", "room", 0)
    # What moves is computed again, and others wait for it.
    made.update("a", room(NOW_S + 2, prompt_backlog_tokens=AGAIN * 500 - 100), NOW_S + 2)
    assert made.choose("ab", ASKED, NOW_S + 2, prefix=SEVEN, among="ab").replica == "a"
    made.update("a", room(NOW_S + 3, prompt_backlog_tokens=AGAIN * 500 + 100), NOW_S + 3)
    moved = made.choose("ab", ASKED, NOW_S + 3, prefix=SEVEN, among="ab")
    assert (moved.replica, moved.cached_tokens) == ("b", 0)
    # It is held by both from then on, so the emptier one has it.
    made.update("a", room(NOW_S + 4, running=13), NOW_S + 4)
    assert made.choose("ab", ASKED, NOW_S + 4, prefix=SEVEN, among="ab").replica == "b"


def test_what_all_begin_with_sends_them_nowhere() -> None:
    """A system prompt of 0.5 s is at the one that had the first prompt, until all had one."""
    made = chooser({name: room() for name in "abcd"}, prefix_affinity=True)
    taken = []
    for conversation in range(4):
        prefix = Prefix((7, 100 + conversation), 250.0)
        chosen = made.choose("abcd", ASKED, NOW_S, prefix=prefix, among="abcd")
        made.sent(chosen.replica, ASKED, NOW_S, chosen.cached_tokens)
        taken.append(chosen.replica)
    assert sorted(taken) == list("abcd")


def test_clocks_that_are_off_leave_figures_usable() -> None:
    made = chooser({})
    made.update("a", room(NOW_S + 3600), NOW_S)
    made.update("b", room(NOW_S - 3600, prompt_backlog_tokens=900), NOW_S)
    chosen = made.choose("ab", ASKED, NOW_S)
    assert (chosen.replica, chosen.outcome) == ("a", "room")
    # What is dated ahead gets old all the same.
    assert made.choose("ab", ASKED, NOW_S + 6).outcome in ("sent", "random")


def test_a_router_that_sends_a_half_takes_its_own_for_a_half() -> None:
    made = chooser({"a": room()})
    for k in range(1, 6):
        at_s = NOW_S + k
        for _ in range(10):
            made.sent("a", ASKED, at_s - 0.5)
        made.update("a", room(at_s, arrivals=20 * k), at_s)
    assert made.share == pytest.approx(0.5)
    made.sent("a", ASKED, NOW_S + 5.5)
    assert made.choose("a", ASKED, NOW_S + 5.5).wait_s == pytest.approx(0.5 + 2 * 0.5)


def test_replicas_that_are_gone_are_forgotten() -> None:
    made = chooser({"a": room(prompt_backlog_tokens=900), "b": room()})
    made.keep("b")
    assert set(made._known) == {"b"}
    assert made.choose("ab", ASKED, NOW_S).outcome == "partial"
