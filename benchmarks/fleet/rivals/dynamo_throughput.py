"""Dynamo's planner, throughput mode: replicas for the forecast of the next interval.

Every ``interval_s`` the number of requests and their mean lengths are forecast (``constant``: as in
the last; ``trend``: a local linear trend by a Kalman filter), and N = ceil(requests/s / e), e the
most requests/s of one engine inside the SLA at those lengths. Dynamo takes e from a sweep on the
card or a regression; here it is the capacity that replicas publish, times ``engine`` (its target
latencies, which an expert lowers for headroom, come to such a factor).

Source: ai-dynamo/dynamo at 0c9050c9, ``planner/core/throughput_scaling.py``, mode ``agg``; its
design document for the predictors. ARIMA and Prophet, for which it brings libraries, are left out.
"""

import math
from typing import Any

READS = ("arrival_rate_per_s", "capacity_per_s")
LEVEL_NOISE, SLOPE_NOISE, SEEN_NOISE = 1.0, 0.1, 4.0  # of the filter; their proportions count


class DynamoThroughput:
    """Args: interval_s; engine: factor on e; predictor: ``constant`` or ``trend``."""

    def __init__(
        self, interval_s: float = 180.0, engine: float = 0.9, predictor: str = "constant"
    ) -> None:
        self._interval_s, self._engine, self._trend = interval_s, engine, predictor == "trend"
        self._due_s, self._sum, self._samples, self._desired = -math.inf, 0.0, 0, 0
        self._level: float | None = None
        self._slope, self._p = 0.0, [[SEEN_NOISE, 0.0], [0.0, SEEN_NOISE]]

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        metrics = ctx.aggregated_metrics or {}
        capacities = list(metrics.get("capacity_per_s", {}).values())
        self._sum += sum(metrics.get("arrival_rate_per_s", {}).values())
        self._samples += 1
        if not capacities:
            return ctx.target_num_replicas, {}
        if ctx.current_time >= self._due_s:
            self._due_s = ctx.current_time + self._interval_s
            coming = self._forecast(self._sum / self._samples)
            self._sum, self._samples = 0.0, 0
            e = self._engine * sum(capacities) / len(capacities)
            self._desired = max(math.ceil(coming / e), 1)
        return self._desired or ctx.target_num_replicas, {}

    def _forecast(self, seen: float) -> float:
        if not self._trend:
            return seen
        if self._level is None:
            self._level = seen
            return seen
        (a, b), (_, d) = self._p
        level = self._level + self._slope
        a, b, d = a + 2 * b + d + LEVEL_NOISE, b + d, d + SLOPE_NOISE
        gain, slope_gain = a / (a + SEEN_NOISE), b / (a + SEEN_NOISE)
        error = seen - level
        self._level, self._slope = level + gain * error, self._slope + slope_gain * error
        self._p = [[(1 - gain) * a, (1 - gain) * b], [(1 - gain) * b, d - slope_gain * b]]
        return max(self._level + self._slope, 0.0)
