"""What a replica publishes for autoscaling: only what it keeps to."""

from typing import Any

import pytest

from controller.capacity import capacity_per_s
from controller.models.step_time import StepModel
from controller.records import AutoscaledLoad
from replicas.server.autoscaling_stats import autoscaling_stats
from tests.builders import moments_of, report

ALWAYS = {
    "running": 10.0,
    "waiting": 5.0,
    "arrival_rate_per_s": 2.0,
    "refused_per_s": 0.0,
    "demand_per_s": 2.0,
}
# A request of 100 + 100 tokens: 0.02 s of prefill and 0.02 s of decode.
MODEL = StepModel(0.02, 2e-4, 0.0, 2e-4, 0.0, 0.0)


REACHED = {"sla_out_of_reach": 0.0}


@pytest.mark.parametrize(
    ("fields", "published"),
    [
        (
            {"max_running": 64, "capacity_per_s": 8.0, "capacity_error_frac": 0.1},
            REACHED | {"max_running": 64.0, "capacity_per_s": 8.0, "capacity_error_frac": 0.1},
        ),
        ({"max_running": 64}, REACHED | {"max_running": 64.0}),  # an unknown capacity is left out
        # Where the cap is not applied it is the engine's own size.
        ({"max_running": 1, "enforced": False}, REACHED | {"max_running": 256.0}),
        # An SLA out of reach is published without cap and capacity.
        (
            {"max_running": 1, "capacity_per_s": 0.0, "sla_out_of_reach": True},
            {"sla_out_of_reach": 1.0},
        ),
    ],
)
def test_what_is_kept_to_is_published(fields: dict[str, Any], published: dict[str, float]) -> None:
    found = autoscaling_stats(report(**fields))
    assert {k: v for k, v in found.items() if k != "capacity_error_frac"} == ALWAYS | {
        k: v for k, v in published.items() if k != "capacity_error_frac"
    }
    assert found.get("capacity_error_frac", 0) == published.get("capacity_error_frac", 0)


@pytest.mark.parametrize(
    ("role", "mode", "told"),
    [
        ("prefill", "leased", True),
        ("prefill", "fallback", False),
        ("mixed", "fallback", True),
        (None, "fallback", True),
    ],
)
def test_a_prefill_engine_on_its_own_tells_no_capacity_which_it_would_know_without_an_itl(
    role: Any, mode: Any, told: bool
) -> None:
    stats = autoscaling_stats(report(role=role, mode=mode, capacity_per_s=8.0))
    assert ("capacity_per_s" in stats) is ("capacity_error_frac" in stats) is told
    assert {"running", "max_running"} <= stats.keys()


def test_who_was_refused_is_demand_that_does_not_wait() -> None:
    stats = autoscaling_stats(report(), refused_per_s=3.0)
    assert (stats["arrival_rate_per_s"], stats["demand_per_s"], stats["refused_per_s"]) == (5, 5, 3)


def test_no_more_run_and_no_more_is_carried_than_ray_serve_lets_in() -> None:
    # 100 + 100 tokens: 0.04 s of work and 2 s of empty steps over the batch.
    held = report(
        max_running=64,
        capacity_per_s=capacity_per_s(MODEL, moments_of([(100, 100)]), 64, None),
        lengths=moments_of([(100, 100)]),
        model=MODEL,
    )
    stats = autoscaling_stats(held, most_ongoing=16)
    assert stats["max_running"] == 16
    assert stats["capacity_per_s"] == pytest.approx(1 / (0.04 + 2 / 16))
    unmodelled = autoscaling_stats(report(max_running=64, capacity_per_s=8.0), most_ongoing=16)
    assert unmodelled["capacity_per_s"] == 2.0
    assert autoscaling_stats(held, most_ongoing=64) == autoscaling_stats(held)


@pytest.mark.parametrize(
    ("arriving", "size"),
    [
        ([100] * 9, 1.0),
        ([200] * 9, 1.5),
        ([50] * 9, 0.75),
        ([9000] * 9, 4.0),
        ([200], 1.0),
        ([20, 380] * 40, 1.5),
        ([20, 380] * 2, 1.0),
    ],
)
def test_longer_prompts_are_more_demand_once_that_is_sure(arriving: list[int], size: float) -> None:
    ended = moments_of([(100, 100)] * 9)
    prompts = moments_of((tokens, 0) for tokens in arriving)
    stats = autoscaling_stats(report(lengths=ended, model=MODEL, prompts=prompts))
    assert stats["demand_per_s"] == pytest.approx(2.0 * size)


def counted(lengths: list[tuple[int, int]], **numbers: Any) -> AutoscaledLoad:
    known = {"running": 3, "waiting": 1, "arrival_rate_per_s": 2.0, **numbers}
    prompts = moments_of((tokens, 0) for tokens, _ in lengths)
    of_online = {"prompts": prompts, "lengths": moments_of(lengths)}
    return AutoscaledLoad(**known, **of_online, first_tokens=9, late_first_tokens=1)


def test_requests_that_do_not_count_for_autoscaling_are_in_none_of_its_numbers() -> None:
    full = report(running=200, waiting=90, arrival_rate_per_s=50.0, autoscaled=counted([]))
    stats = autoscaling_stats(full, refused_per_s=1.0, counts_late=True)
    assert (stats["running"], stats["waiting"], stats["unscaled"]) == (3.0, 1.0, 286.0)
    assert (stats["arrival_rate_per_s"], stats["demand_per_s"]) == (3.0, 3.0)
    assert (stats["first_tokens"], stats["late_first_tokens"]) == (9.0, 1.0)


@pytest.mark.parametrize(
    ("ended", "size"),
    [
        (20, 0.04 / 0.22),  # they take 0.04 s, those of batches 0.4, and so the mean of all 0.22
        (5, 1 - 450 * 2e-4 / 0.22),  # too few to say how long they get: their prompts do
    ],
)
def test_demand_is_in_requests_of_the_size_that_capacity_counts(ended: int, size: float) -> None:
    everybody = moments_of([(100, 100)] * 20 + [(1000, 1000)] * 20)
    load = counted([(100, 100)] * ended)
    stats = autoscaling_stats(report(lengths=everybody, model=MODEL, autoscaled=load))
    assert stats["demand_per_s"] == pytest.approx(2.0 * size)
