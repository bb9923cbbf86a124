"""llm-d's workload-variant autoscaler: saturation by KV memory and queue, in tokens.

A replica's demand is the KV tokens in use and, for each waiting request, I + O; its capacity is the
smaller of k1 = ``kv_threshold`` x KV memory and k2, what it held when its queue was at
``queue_threshold`` or above: seen now, else the mean of the last ten such times, else derived as
N (I + O/2) with N = min(B O / (I + O), S) for a step of B tokens and S requests. With the median
capacity c of N replicas, those that start included: demand / ``up`` above N c asks for
ceil(missing / c) more; N c - demand / ``down`` above 0 gives back floor(spare / c).

Source: llm-d-incubation/workload-variant-autoscaler at 256df39c, ``saturation_v2/analyzer.go``, and
its configuration of v0.9 (defaults 0.80, 5, 0.85, 0.70).
"""

import math
from collections import deque
from statistics import median
from typing import Any

READS = ("kv_used_frac", "waiting", "prompt_tokens", "output_tokens")
KEPT = 10


class WorkloadVariant:
    """Args: kv_tokens, step_tokens, slots: of one engine; the rest as above."""

    def __init__(
        self,
        kv_tokens: float,
        step_tokens: float,
        slots: float,
        kv_threshold: float = 0.8,
        queue_threshold: float = 5.0,
        up: float = 0.85,
        down: float = 0.7,
    ) -> None:
        self._kv, self._step, self._slots = kv_tokens, step_tokens, slots
        self._k1, self._queue = kv_threshold * kv_tokens, queue_threshold
        self._up, self._down = up, down
        self._seen: deque[float] = deque(maxlen=KEPT)

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        metrics = ctx.aggregated_metrics or {}
        used = metrics.get("kv_used_frac", {})
        if not used:
            return ctx.target_num_replicas, {}
        waiting = metrics["waiting"]
        prompt = sum(metrics["prompt_tokens"].values()) / len(used)
        output = sum(metrics["output_tokens"].values()) / len(used)
        demand, capacities = ctx.total_queued_requests * (prompt + output), []
        for replica, share in used.items():
            held = share * self._kv
            demand += held + waiting[replica] * (prompt + output)
            capacities.append(min(self._k1, self._k2(held, waiting[replica], prompt, output)))
        one = max(median(capacities), 1.0)
        target = int(ctx.target_num_replicas)
        missing = demand / self._up - target * one
        if missing > 0:
            return target + math.ceil(missing / one), {}
        spare = len(used) * one - demand / self._down
        if spare > 0 and target == len(used):
            return max(target - math.floor(spare / one), 1), {}
        return target, {}

    def _k2(self, held: float, waiting: float, prompt: float, output: float) -> float:
        if waiting >= self._queue and held > 0:
            self._seen.append(held)
            return held
        if self._seen:
            return sum(self._seen) / len(self._seen)
        if output <= 0:
            return self._k1
        running = min(self._step * output / (prompt + output), self._slots)
        return running * (prompt + output / 2)
