from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.fleet.rivals.dynamo_load import DynamoLoad


def context(target: int, now_s: float = 0.0, queued: float = 0.0, **each: list[float]) -> Any:
    """Metrics as lists: a value per replica."""
    metrics = {name: dict(enumerate(values)) for name, values in each.items()}
    return SimpleNamespace(
        aggregated_metrics=metrics,
        target_num_replicas=target,
        current_num_replicas=target,
        current_time=now_s,
        total_queued_requests=queued,
        policy_state={},
    )


def engines(target: int, decoding: float, backlog: float, now_s: float = 0.0) -> Any:
    return context(
        target,
        now_s,
        decoding=[decoding] * target,
        prompt_backlog_tokens=[backlog] * target,
        arrival_rate_per_s=[0.0] * target,
        prompt_tokens=[1000.0] * target,
    )


@pytest.mark.parametrize(
    ("decoding", "backlog", "replicas"),
    [
        *((10, 0, 3), (40, 0, 4), (70, 0, 5), (10, 20_000, 5), (10, 6000, 4)),
        (10, 9500, 5),  # 0.95 s wait before it, 0.1 s for its own, 0.025 s
        *((29, 0, 3), (31, 0, 4)),  # 4 / 3 times as many, and 40 decodes take 80% of 50 ms
    ],
)
def test_dynamo_moves_by_one_where_all_engines_agree(
    decoding: float, backlog: float, replicas: int
) -> None:
    policy = DynamoLoad(0.02, 0.0005, 0.0001, ttft_s=1.0, itl_s=0.05)
    assert policy(engines(4, decoding, backlog))[0] == replicas
