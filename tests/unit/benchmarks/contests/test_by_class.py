"""What each class of a replay had of its due."""

import pytest

from benchmarks.contests.by_class import attained, holds, keeps_up
from controller.classes import parse_classes
from simulator.virtual.trace import Outcome, Trace, make_gaps
from simulator.workloads.requests import Request

CLASSES = parse_classes(
    {
        "gold": {"itl_ms": 50, "ttft_ms": 2000, "default": True},
        "batch": {"ttft_ms": 600_000, "priority": 2},
    }
)


def trace(outcomes: list[Outcome], gaps: list[tuple[float, float, int]], end_s: float) -> Trace:
    return Trace(tuple(outcomes), (), make_gaps(gaps), (), 100, end_s)


def outcome(service: str, arrival_s: float, first_s: float | None, tokens: int = 3) -> Outcome:
    request = Request(arrival_s, 10, tokens, service=service)
    ends_s = None if first_s is None else first_s + 1
    return Outcome(request, False, tokens, first_s, first_s, ends_s)


def test_of_the_second_half_first_tokens_and_gaps_in_time() -> None:
    found = attained(
        trace(
            [
                outcome("gold", 1.0, 9.0),  # of the first half
                outcome("gold", 10.0, 11.0),
                outcome("gold", 11.0, 13.5),  # late
                outcome("gold", 19.0, None),  # may yet be in time
                outcome("gold", 12.0, None),  # not any more
                outcome("batch", 10.0, 19.0),
            ],
            [(0.9, 9.5, 0), (0.04, 11.1, 1), (0.06, 13.6, 2), (0.05, 13.7, 2), (0.9, 19.5, 5)],
            20.0,
        ),
        "gold",
        CLASSES.by_name["gold"],
    )
    assert found.first_frac == pytest.approx(1 / 3)
    assert found.gaps_frac == pytest.approx(2 / 3)
    assert found.frac == pytest.approx(1 / 3)


@pytest.mark.parametrize(("waiting", "so"), [(0, True), (2, True), (3, False)])
def test_a_queue_that_grows_does_not_hold_though_nobody_is_late(waiting: int, so: bool) -> None:
    served = [outcome("batch", 10.0 + k / 20, 11.0 + k / 20) for k in range(100)]
    queue = [outcome("batch", 19.0, None) for _ in range(waiting)]
    one = trace(served + queue, [], 20.0)
    assert keeps_up(one) is so
    assert holds(one, CLASSES) is so
