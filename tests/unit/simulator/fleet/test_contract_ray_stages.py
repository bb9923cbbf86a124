"""What the fleet takes of Ray Serve's own autoscaling, private pieces included."""

from typing import Any

import pytest
from ray.serve.config import AutoscalingContext

from simulator.fleet.ray_stages import ONGOING, Clock, RayAutoscaler


class Says:
    """A policy with a given answer, which records its contexts."""

    seen: list[AutoscalingContext] = []
    desired: float = 1

    def __call__(self, ctx: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        Says.seen.append(ctx)
        _ = ctx.aggregated_metrics, ctx.total_num_requests, ctx.total_queued_requests
        return Says.desired, {"kept": len(Says.seen)}


def scaler(clock: Clock, replicas: int = 2, **settings: Any) -> RayAutoscaler:
    policy = {"policy_function": f"{__name__}:Says", "policy_kwargs": {}}
    return RayAutoscaler(
        {"min_replicas": 1, "max_replicas": 10, "policy": policy, **settings}, replicas, clock
    )


def test_delays_and_bounds_are_rays_on_our_clock() -> None:
    clock = Clock()
    ray = scaler(clock, upscale_delay_s=30, downscale_delay_s=60)
    Says.desired = 50
    ray.observe({"a": {ONGOING: 1.0}, "b": {ONGOING: 1.0}}, 0.0)
    said = []
    for clock.now_s in (10.0, 20.0, 39.0, 40.0):
        said.append(ray.decide())
    assert said == [2, 2, 2, 10]
    Says.desired = 0
    said = []
    for clock.now_s in (50.0, 109.0, 110.0):
        said.append(ray.decide())
    assert said == [10, 10, 1]


def test_samples_are_averaged_over_the_look_back_period() -> None:
    clock = Clock()
    ray = scaler(clock, look_back_period_s=25, metrics_interval_s=10)
    Says.desired = 2
    for clock.now_s, value, queued in ((10.0, 90.0, 8.0), (20.0, 1.0, 2.0), (30.0, 3.0, 4.0)):
        ray.observe({"a": {"n": value, ONGOING: value}, "b": {"n": 0.0, ONGOING: 5.0}}, queued)
    clock.now_s = 40.0  # 10 s, 20 s: the sample of 10 s still counts, until 20 s
    ray.decide()
    ctx = Says.seen[-1]
    found = {str(r.unique_id): v for r, v in ctx.aggregated_metrics["n"].items()}
    assert found == {"a": pytest.approx((90 + 1 + 3) / 3), "b": 0.0}
    assert ctx.total_queued_requests == pytest.approx((8 + 2 + 4) / 3)
    assert ctx.total_num_requests == pytest.approx((90 + 1 + 3) / 3 + 5 + (8 + 2 + 4) / 3)
    assert ctx.current_time == 40.0 and ctx.current_num_replicas == 2
