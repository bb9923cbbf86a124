"""Dynamo's planner with both modes, as its guide recommends: one is the floor, the other reacts.

Throughput mode says, every ``throughput_s``, how many replicas there are to be at least; load mode
goes up and down by one above that. While a change is under way nothing is asked for, as in load
mode.

Source: ai-dynamo/dynamo at 0c6da1ec, ``planner/core/load_scaling.py``, and at 0c9050c9,
``planner/core/throughput_scaling.py``, both modes enabled.
"""

from typing import Any

from benchmarks.fleet.rivals import dynamo_load, dynamo_throughput
from benchmarks.fleet.rivals.dynamo_load import DynamoLoad
from benchmarks.fleet.rivals.dynamo_throughput import DynamoThroughput

READS = tuple(dict.fromkeys((*dynamo_load.READS, *dynamo_throughput.READS)))


class DynamoBoth:
    """Args: those of load mode; throughput_s, engine, predictor: of throughput mode."""

    def __init__(
        self,
        *,
        throughput_s: float = 180.0,
        engine: float = 0.9,
        predictor: str = "constant",
        **load: float,
    ) -> None:
        self._load = DynamoLoad(**load)
        self._floor = DynamoThroughput(throughput_s, engine, predictor)

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        floor, _ = self._floor(ctx)
        desired, _ = self._load(ctx)
        decoding = (ctx.aggregated_metrics or {}).get("decoding", {})
        under_way = len(decoding) != ctx.target_num_replicas
        return desired if under_way else max(desired, floor), {}
