"""What each request is promised."""

import math
from collections import Counter
from itertools import count
from types import SimpleNamespace
from typing import Any

from controller.records import ClassSlo
from controller.request_slo import KEY, RequestSlo
from replicas.engine.by_class import ByClass
from tests.builders import sample

GOLD, SILVER, DEFAULT = RequestSlo(0.05, 99, 2.0), RequestSlo(0.1), RequestSlo(ttft_s=9.0)


class Request(SimpleNamespace):
    __hash__ = object.__hash__  # as vLLM's


def request(req_id: str, slo: RequestSlo | None = None) -> Any:
    told = None if slo is None else {KEY: slo.to_wire(), "other": 1}
    return Request(request_id=req_id, sampling_params=SimpleNamespace(extra_args=told))


def filled() -> ByClass:
    one = ByClass(DEFAULT, on=True)
    for each in (request("a", GOLD), request("b", SILVER), request("c"), request("d", GOLD)):
        one.come(each)
    return one


def test_requests_of_one_promise_have_one_column() -> None:
    one = filled()
    assert [slo.itl_s for slo in one.slos] == [math.inf, 0.05, 0.1]
    assert one.slos[1] == ClassSlo(0.05, 99)
    assert one.measured("abcd", "") == (1, 2, 1)
    assert one.ttft_of is not None
    assert [one.ttft_of(r) for r in "abcd"] == [2.0, math.inf, 9.0, 2.0]
    assert [one.promised_s(r) for r in "abc"] == [0.05, 0.1, math.inf]


def test_nothing_is_kept_where_classes_are_alike() -> None:
    one = ByClass(DEFAULT, on=False)
    one.come(request("a", GOLD))
    one.gone("a")
    assert (one.slos, one.ttft_of, one.promised_s("a")) == ((), None, math.inf)
    assert not one._gone


def test_tokens_are_late_by_the_promise_of_their_class() -> None:
    one = filled()
    for took_s, late in ((0.04, 0), (0.06, 2), (0.14, 3)):
        by_class = one.measured("abcd", "")
        assert one.late(sample(by_class=by_class, duration_s=took_s)) == late
    held_up = sample(by_class=one.measured("abc", "c"), duration_s=0.04, seen_s=0.07)
    assert one.late(held_up) == 1  # by what clients saw


def test_the_classes_that_decode_next_are_those_of_the_last_step_without_its_prompts() -> None:
    one = filled()
    one.scheduled("abd", [request("b")])
    assert one.decodes == [0, 2, 0]
    one.scheduled("abc", [])
    assert one.decodes == [1, 1, 1]


def test_those_without_a_time_between_tokens_are_skipped_in_turn() -> None:
    one = ByClass(RequestSlo(), on=True)
    strict, loose = request("s", GOLD), [request(f"l{k}") for k in range(7)]
    running = [loose[0], strict, *loose[1:]]
    for each in running:
        one.come(each)
    prompts, decoded = loose[6:], Counter()
    for _ in range(12):
        out = one.skip(running, prompts, 4)
        assert len(out) == 4
        assert out <= set(loose[:6])
        decoded.update(r.request_id for r in running if r not in out and r not in prompts)
    assert decoded == {"s": 12, **{f"l{k}": 4 for k in range(6)}}
    assert one.skip(running, prompts, 100) == set(loose[:6])


def test_a_skipped_request_has_its_turn_though_others_end_and_come() -> None:
    one, numbers = ByClass(RequestSlo(), on=True), count()
    running = [request(f"l{next(numbers)}") for _ in range(100)]
    waited: dict[str, int] = {}
    for step in range(300):
        out = one.skip(running, [], 95)
        for r in running:
            waited[r.request_id] = waited.get(r.request_id, 0) + 1 if r in out else 0
        assert max(waited[r.request_id] for r in running) <= 20
        running.pop(step * 37 % 100)
        running.append(request(f"l{next(numbers)}"))


def test_decodes_that_a_step_may_skip_are_those_without_a_promise() -> None:
    one = ByClass(RequestSlo(), on=True)
    for each in (request("a", GOLD), request("b"), request("c")):
        one.come(each)
    one.scheduled("abc", [])
    assert (one.loose, one.hurried([request("b")]), one.hurried([request("a")])) == (2, False, True)
    never = ByClass(RequestSlo(), on=True, may_skip=False)
    never.scheduled("abc", [])
    assert never.loose == 0


def test_a_request_that_is_done_counts_in_steps_under_way_and_is_forgotten() -> None:
    one = filled()
    one.gone("a")
    assert [one.measured("ab", "") for _ in range(3)] == [(0, 1, 1), (0, 1, 1), (0, 0, 1)]
    assert "a" not in one._slo_id
