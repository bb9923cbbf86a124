"""What each request is promised, and gaps of those that were left out of steps."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from controller.policies.class_chunks import SampleByClass
from controller.records import StepLimits
from controller.request_slo import KEY, RequestSlo
from replicas.engine.by_class import ByClass
from tests.builders import sample

GOLD, SILVER, DEFAULT = RequestSlo(0.05, 99, 2.0), RequestSlo(0.1), RequestSlo(ttft_s=9.0)


class Asked:
    """A request, as far as it is looked at."""

    def __init__(self, req_id: str, told: Any) -> None:
        self.request_id = req_id
        self.sampling_params = SimpleNamespace(extra_args=told)
        self.num_output_tokens, self.priority = 1, 0


def request(req_id: str, slo: RequestSlo | None = None) -> Any:
    return Asked(req_id, None if slo is None else {KEY: slo.to_wire(), "other": 1})


def step(*ids: str, prompts: tuple[str, ...] = ()) -> Any:
    given = dict.fromkeys((*ids, *prompts), 1)
    return SimpleNamespace(
        num_scheduled_tokens=given,
        total_num_scheduled_tokens=len(given),
        scheduled_cached_reqs=SimpleNamespace(req_ids=list(ids)),
    )


def filled() -> tuple[ByClass, list[Any]]:
    one = ByClass(DEFAULT, on=True)
    requests = [request("a", GOLD), request("b", SILVER), request("c"), request("d", GOLD)]
    for each in requests:
        one.come(each)
    return one, requests


def test_requests_of_one_agreement_have_one_number() -> None:
    one, requests = filled()
    assert one.slos == (DEFAULT, GOLD, SILVER)
    assert one.slo_ids(requests).tolist() == [1, 2, 0, 1]
    assert [one.ttft_of(r) for r in "abcd"] == [2.0, math.inf, 9.0, 2.0]


def test_nothing_is_kept_where_classes_are_alike() -> None:
    one = ByClass(DEFAULT, on=False)
    one.come(request("a", GOLD))
    assert one.slos == ()
    assert one.slo_ids([request("a")]) is None
    assert one.ttft_of is None
    plain = sample()
    assert one.measured(plain, step("a"), [], 1.0) is plain
    one.gone("a")
    assert not one._gone


def measured(one: ByClass, now_s: float, step_s: float, *ids: str, **more: Any) -> SampleByClass:
    found = one.measured(
        sample(duration_s=step_s), step(*ids, **more), list(more.get("prompts", ())), now_s
    )
    assert isinstance(found, SampleByClass)
    return found


def skip(
    one: ByClass,
    running: list[Any],
    out: list[int],
    way: list[int] | None = None,
    first: Any = None,
) -> list[Any]:
    limits = StepLimits(9, 99, skipped=tuple(out), deferred=tuple(way or ()))
    one.skip(running, limits, iter([] if first is None else [first]))
    return one._skipped


def test_tokens_are_counted_by_agreement_and_late_by_their_own() -> None:
    one, _ = filled()
    assert measured(one, 1.0, 0.04, "a", "b", prompts=("c",)).tokens == (0, 1, 1)
    found = measured(one, 1.06, 0.06, "a", "b", "c", "d")
    assert (found.tokens, found.late, found.longer) == ((1, 2, 1), 2, ())
    assert measured(one, 1.2, 0.14, "a", "b", "c").late == 2


def test_a_gap_over_steps_that_left_a_request_out_is_seen_with_its_token() -> None:
    one, (_a, b, c, _d) = filled()
    measured(one, 1.0, 0.04, "a", "b", "c")
    skip(one, [b, c], [0, 1])
    assert measured(one, 1.05, 0.05, "a").longer == ()
    found = measured(one, 1.11, 0.06, "a", "b", "c")
    assert [number for number, _ in found.longer] == [0, 2]
    assert [gap_s for _, gap_s in found.longer] == pytest.approx([0.11, 0.11])
    assert found.late == 2  # a by the step, b by its gap
    assert measured(one, 1.15, 0.04, "a", "b", "c").longer == ()
    skip(one, [b], [0])
    one.lost("b")  # what comes next is measured as a preemption
    assert measured(one, 1.3, 0.04, "b").longer == ()


def test_the_next_input_of_a_session_is_no_late_token() -> None:
    one, (_a, b, _c, _d) = filled()
    measured(one, 1.0, 0.04, "a", "b")
    skip(one, [b], [0])
    measured(one, 1.05, 0.05, "a")
    found = measured(one, 31.0, 0.05, "a", "b", prompts=("b",))
    assert (found.longer, found.late) == ((), 0)


def test_a_request_that_is_done_counts_in_steps_under_way_and_is_forgotten() -> None:
    one, _ = filled()
    one.gone("a")
    assert measured(one, 1.0, 0.04, "a", "b").tokens == (0, 1, 1)
    assert measured(one, 1.1, 0.04, "a", "b").tokens == (0, 1, 1)
    assert measured(one, 1.2, 0.04, "a", "b").tokens == (0, 0, 1)
    assert "a" not in one._slo_id and "a" not in one._last_s


def test_how_long_each_has_waited_when_the_next_step_begins() -> None:
    one, requests = filled()
    measured(one, 1.0, 0.04, "a", "b")
    assert one.waited_s(requests, [], 1.0).tolist() == [0, 0, 0, 0]
    skip(one, requests, [1])
    measured(one, 1.05, 0.05, "a")
    assert one.waited_s(requests, [], 1.05).tolist() == pytest.approx([0, 0.05, 0, 0])
    in_flight = [(step("a", "b"), 1.10)]
    assert one.waited_s(requests, in_flight, 1.05).tolist() == pytest.approx([0, 0, 0, 0])
    in_flight = [(step("a"), 1.10)]
    assert one.waited_s(requests, in_flight, 1.05).tolist() == pytest.approx([0, 0.1, 0, 0])


def test_who_is_left_out_stands_where_it_stood() -> None:
    one, (a, b, c, d) = filled()
    scheduler = SimpleNamespace(running=[a, b, c], cap=3)
    skip(one, [b], [0])
    with one.hide_skipped(scheduler, "cap"):
        assert (scheduler.running, scheduler.cap) == ([a, c], 2)
        scheduler.running.remove(c)  # preempted
        scheduler.running.append(d)
    assert (scheduler.running, scheduler.cap) == ([a, b, d], 3)
    with one.hide_skipped(scheduler, "cap"):
        assert scheduler.running == [a, b, d]
    skip(one, [a], [0])
    with pytest.raises(ZeroDivisionError), one.hide_skipped(scheduler, "cap"):
        raise ZeroDivisionError
    assert (scheduler.running, scheduler.cap) == ([a, b, d], 3)


def test_no_prompt_gives_way_to_one_of_lower_priority() -> None:
    one, _ = filled()

    def prompt(priority: int, outputs: int = 0) -> Any:
        one = request(f"{priority} {outputs}")
        one.priority, one.num_output_tokens = priority, outputs
        return one

    first, second, decode = prompt(0), prompt(2), prompt(0, 3)
    running = [first, second, decode, prompt(1)]
    assert skip(one, running, [0, 1, 2], [0, 1]) == [second, decode]
    # Nobody else is here, or only one of lower priority, or one of the same.
    assert skip(one, running[:3], [0, 1, 2], [0, 1]) == [decode]
    assert skip(one, running[:3], [0, 1, 2], [0, 1], prompt(5)) == [decode]
    assert skip(one, running[:3], [0, 1, 2], [0, 1], prompt(0)) == [first, second, decode]
    # Where a step is full it is not for another one.
    assert skip(one, running[:3], [0, 1], []) == [first, second]
    assert skip(one, running[:3], [0, 1], [], prompt(5)) == [first, second]


def test_prompts_gave_way_in_vain_where_the_first_that_waits_is_still_that() -> None:
    one, (prompt, first, other, decode) = filled()
    scheduler = SimpleNamespace(running=[decode, prompt], cap=9)
    prompt.num_output_tokens = first.num_output_tokens = 0
    assert not one.deferred_in_vain(iter([first]))
    skip(one, [decode, prompt], [1], [1], first)
    assert one.deferred_in_vain(iter([first, other]))
    assert not one.deferred_in_vain(iter([other, first])) and not one.deferred_in_vain(iter([]))
    with one.hide_skipped(scheduler, "cap"):
        pass
    assert one.deferred_in_vain(iter([first]))
    with one.hide_skipped(scheduler, "cap"):  # nobody is left out
        pass
    assert not one.deferred_in_vain(iter([first]))
    # A prompt that is left out for another reason gives way to nobody.
    skip(one, [decode, prompt], [1], [], first)
    assert not one.deferred_in_vain(iter([first]))
    first.priority = 5
    skip(one, [decode, prompt], [0, 1], [1], first)
    assert not one.deferred_in_vain(iter([first]))
