"""What Ray Serve hands to an autoscaling policy, by hand."""

from dataclasses import dataclass, field
from typing import Any

from ray.serve.config import AutoscalingConfig

Metrics = dict[str, dict[str, float]]


@dataclass
class Context:
    """The part of Ray Serve's AutoscalingContext that the policy reads."""

    aggregated_metrics: Metrics | None
    current_num_replicas: int = 1
    target_num_replicas: int = 1
    current_time: float = 0.0
    policy_state: dict[str, Any] = field(default_factory=dict)
    total_queued_requests: float = 0.0
    total_num_requests: float = 0.0
    capacity_adjusted_min_replicas: int = 1
    capacity_adjusted_max_replicas: int = 50
    raw_metrics: dict[str, dict[str, Any]] | None = None
    config: AutoscalingConfig | None = None
    app_name: str = "llm"
    deployment_name: str = "d"


def metrics(*replicas: dict[str, float]) -> Metrics:
    """What Ray Serve makes of each replica's numbers: by metric, then by replica."""
    by_name: Metrics = {}
    for index, numbers in enumerate(replicas):
        for name, value in numbers.items():
            by_name.setdefault(name, {})[f"r{index}"] = value
    return by_name
