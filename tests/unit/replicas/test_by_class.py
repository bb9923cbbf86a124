"""What each request is promised."""

from itertools import count
from types import SimpleNamespace
from typing import Any

from controller.records import to_wire
from controller.request_slo import KEY, RequestSlo
from replicas.engine.by_class import ByClass
from tests.builders import sample

GOLD, SILVER, DEFAULT = RequestSlo(0.05, 99, 2.0), RequestSlo(0.1), RequestSlo(ttft_s=9.0)


class Request(SimpleNamespace):
    __hash__ = object.__hash__  # as vLLM's


def request(req_id: str, slo: RequestSlo | None = None) -> Any:
    told = None if slo is None else {KEY: to_wire(slo), "other": 1}
    return Request(request_id=req_id, sampling_params=SimpleNamespace(extra_args=told))


def filled() -> ByClass:
    one = ByClass(DEFAULT, on=True)
    for each in (request("a", GOLD), request("b", SILVER), request("c"), request("d", GOLD)):
        one.come(each)
    return one


def test_tokens_are_late_by_the_promise_of_their_class() -> None:
    one = filled()
    for took_s, late in ((0.04, 0), (0.06, 2), (0.14, 3)):
        by_class = one.measured("abcd", "")
        assert one.late(sample(by_class=by_class, duration_s=took_s)) == late
    held_up = sample(by_class=one.measured("abc", "c"), duration_s=0.04, seen_s=0.07)
    assert one.late(held_up) == 1  # by what clients saw


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
