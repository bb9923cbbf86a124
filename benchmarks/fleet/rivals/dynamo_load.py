"""Dynamo's planner, load mode: one more if all engines are too slow, one less if none is.

Every ``interval_s``, unless a change is under way: each engine's next TTFT is estimated from its
queued prompt tokens and its mean time between tokens from its decodes and the prompts that come.
All above ``ttft_s``, or all above ``itl_s``: one up. With queue and batch N / (N - 1) times as
large all still below ``sensitivity`` of both: one down.

Dynamo learns the step times by regression from each forward pass; here they are the step-time line
itself. For one down Dynamo takes ``sensitivity`` of what ``ttft_s`` leaves for the queue; here it
is of all of ``ttft_s``, which is stricter by a fifth of a prompt's own time.

Source: ai-dynamo/dynamo at 0c6da1ec, ``planner/core/load_scaling.py``, mode ``agg``, target ``sla``
(defaults: 5 s, 80%).
"""

import math
from typing import Any

READS = ("prompt_backlog_tokens", "decoding", "arrival_rate_per_s", "prompt_tokens")


class DynamoLoad:
    """Args: fixed_s, per_decode_s, per_prefill_s: of the engine's steps; the rest as above."""

    def __init__(
        self,
        fixed_s: float,
        per_decode_s: float,
        per_prefill_s: float,
        ttft_s: float = 1.0,
        itl_s: float = 0.08,
        sensitivity: float = 0.8,
        interval_s: float = 5.0,
    ) -> None:
        self._line = fixed_s, per_decode_s, per_prefill_s
        self._ttft_s, self._itl_s = ttft_s, itl_s
        self._sensitivity, self._interval_s = sensitivity, interval_s
        self._due_s = -math.inf

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        metrics, target = ctx.aggregated_metrics or {}, int(ctx.target_num_replicas)
        decoding = metrics.get("decoding", {})
        if len(decoding) != target or ctx.current_time < self._due_s:
            return target, {}
        self._due_s = ctx.current_time + self._interval_s
        now = [self._estimates(metrics, replica, 1.0) for replica in decoding]
        if all(t > self._ttft_s for t, _ in now) or all(i > self._itl_s for _, i in now):
            return target + 1, {}
        if target <= 1:
            return target, {}
        fewer = [self._estimates(metrics, r, target / (target - 1)) for r in decoding]
        low = self._sensitivity
        if all(t < low * self._ttft_s and i < low * self._itl_s for t, i in fewer):
            return target - 1, {}
        return target, {}

    def _estimates(self, metrics: Any, replica: Any, times: float) -> tuple[float, float]:
        """TTFT and time between tokens of one engine with so many times its load, seconds."""
        fixed_s, per_decode_s, per_prefill_s = self._line
        prompt = metrics["prompt_tokens"].get(replica, 0.0)
        busy = per_prefill_s * metrics["arrival_rate_per_s"].get(replica, 0.0) * times * prompt
        base_s = fixed_s + per_decode_s * metrics["decoding"][replica] * times
        if busy >= 1:
            return math.inf, math.inf
        itl_s = base_s / (1 - busy)
        queued = metrics["prompt_backlog_tokens"].get(replica, 0.0) * times
        return (queued + prompt) * per_prefill_s + itl_s, itl_s
