"""Queue depth alone: Kubernetes' horizontal autoscaler on vLLM's waiting requests.

desired = ceil(N x (waiting per replica) / target), nothing done within the tolerance of 1 (the
HPA's published algorithm; KEDA and llm-d's guide put ``vllm:num_requests_waiting`` into it). Where
none waits the ratio is 0, so the number falls to the lower bound as the delays allow; ``step_down``
holds a fall to a share of the replicas, as the HPA's scale-down policies do.
"""

import math
from typing import Any

READS = ("waiting",)
TOLERANCE = 0.1


class QueueDepth:
    """Args: target: waiting requests per replica; step_down: the largest fall, share of N."""

    def __init__(self, target: float = 1.0, step_down: float = 0.1) -> None:
        self._target, self._step_down = target, step_down

    def __call__(self, ctx: Any) -> tuple[float, dict[str, Any]]:
        waiting = (ctx.aggregated_metrics or {}).get("waiting", {})
        replicas = max(len(waiting), 1)
        ratio = (sum(waiting.values()) + ctx.total_queued_requests) / replicas / self._target
        if abs(ratio - 1) <= TOLERANCE:
            return ctx.target_num_replicas, {}
        desired = math.ceil(replicas * ratio)
        least = math.floor(ctx.target_num_replicas * (1 - self._step_down))
        if desired < replicas:
            return max(desired, min(least, ctx.target_num_replicas - 1)), {}
        return max(desired, ctx.target_num_replicas), {}
