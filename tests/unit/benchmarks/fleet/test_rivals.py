from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.fleet.rivals.dynamo_load import DynamoLoad
from benchmarks.fleet.rivals.queue_depth import QueueDepth
from benchmarks.fleet.rivals.wva import WorkloadVariant


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


@pytest.mark.parametrize(
    ("waiting", "replicas"),
    [([2, 2], 2), ([4, 4], 4), ([2, 1], 2), ([2.1, 2], 2), ([6, 2], 4)],
)
def test_queue_depth_is_the_hpa_formula(waiting: list[float], replicas: int) -> None:
    assert QueueDepth(target=2.0, step_down=0.5)(context(2, waiting=waiting))[0] == replicas


def wva(**constants: float) -> WorkloadVariant:
    return WorkloadVariant(kv_tokens=100_000, step_tokens=2000, slots=64, **constants)


def saturation(target: int, used: float, waiting: float = 0.0) -> Any:
    n = [0.0] * target
    return context(
        target,
        kv_used_frac=[used for _ in n],
        waiting=[waiting for _ in n],
        prompt_tokens=[900.0 for _ in n],
        output_tokens=[100.0 for _ in n],
    )


def test_wva_takes_the_smaller_of_memory_and_compute() -> None:
    # k1 = 80,000; derived k2: min(2000 x 100 / 1000, 64) = 64 running of 950 tokens = 60,800.
    policy = wva()
    assert policy(saturation(4, 0.5))[0] == 4  # 200,000 / 0.85 = 235,294 of 243,200
    assert policy(saturation(4, 0.6))[0] == 5  # 282,353: 39,153 missing
    assert policy(saturation(4, 0.2))[0] == 2  # 243,200 - 80,000 / 0.7 = 128,914 spare


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
