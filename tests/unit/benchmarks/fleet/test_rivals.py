from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.fleet.rivals.dynamo_both import DynamoBoth
from benchmarks.fleet.rivals.dynamo_load import DynamoLoad
from benchmarks.fleet.rivals.dynamo_throughput import DynamoThroughput
from benchmarks.fleet.rivals.queue_depth import QueueDepth
from benchmarks.fleet.rivals.wva import WorkloadVariant
from simulator.fleet.oracle import Oracle


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


def test_dynamo_takes_what_the_last_interval_had() -> None:
    policy = DynamoThroughput(interval_s=60.0, engine=1.0)
    rates = {"arrival_rate_per_s": [3.0, 4.0], "capacity_per_s": [2.0, 2.0]}
    assert policy(context(2, 0.0, **rates))[0] == 4
    rates["arrival_rate_per_s"] = [6.0, 6.0]
    assert policy(context(4, 30.0, **rates))[0] == 4
    rates["arrival_rate_per_s"] = [4.0, 4.0]
    assert policy(context(4, 60.0, **rates))[0] == 5  # (12 + 8) / 2 in the interval


def test_dynamo_follows_a_trend() -> None:
    policy = DynamoThroughput(interval_s=60.0, engine=1.0, predictor="trend")
    said = [
        policy(context(1, 60.0 * k, arrival_rate_per_s=[10.0 * k], capacity_per_s=[1.0]))[0]
        for k in range(12)
    ]
    assert said[-1] == pytest.approx(120, abs=3)  # the next one's, not the last one's


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


@pytest.mark.parametrize(("coming", "replicas"), [(0.0, 3), (3.9, 4), (7.5, 8)])
def test_dynamos_throughput_mode_is_the_floor_of_its_load_mode(
    coming: float, replicas: int
) -> None:
    """Load mode alone gives one of four back."""
    line: Any = {"fixed_s": 0.02, "per_decode_s": 0.0005, "per_prefill_s": 0.0001, "itl_s": 0.05}
    now = engines(4, 10, 0)
    now.aggregated_metrics["arrival_rate_per_s"] = dict.fromkeys(range(4), coming / 4)
    now.aggregated_metrics["capacity_per_s"] = dict.fromkeys(range(4), 1.0)
    now.aggregated_metrics["prompt_tokens"] = dict.fromkeys(range(4), 10.0)
    policy = DynamoBoth(engine=1.0, **line)
    assert policy(now)[0] == replicas
    now.target_num_replicas = 5  # one starts
    assert DynamoBoth(engine=1.0, **line)(now)[0] == 5


def test_the_oracle_starts_a_startup_ahead_and_gives_back_in_time() -> None:
    policy = Oracle([1, 1, 1, 5, 1, 1, 1, 1], step_s=10.0, startup_s=20.0)
    said = [policy(context(1, now_s))[0] for now_s in (0.0, 5.0, 10.0, 30.0, 40.0, 500.0)]
    assert said == [1, 1, 5, 5, 1, 1]
