"""What the scheduler's own code costs per step: ``make bench-scheduler``.

The real scheduler and KV manager run in this process without a model. Own code is the time of
``DynamicBatchScheduler``'s ``schedule`` and ``update_from_output`` less the time of vLLM's own
methods inside them.
"""

import json
import statistics
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from tqdm import tqdm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput

from benchmarks.policies import EngineOptions, parse_policy
from benchmarks.requests import Request
from benchmarks.virtual import TOKEN, RequestMaker, make_scheduler
from controller.config import Sla
from replicas.scheduler import DynamicBatchScheduler

SIZES = (16, 256, 1024)
WARM_UP, STEPS = 50, 400
TARGET_US = 100.0  # the median at 256 running
PROMPT, LENGTH = 128, WARM_UP + 10 * STEPS
BLOCKS, BLOCK_STEPS = 30, 20  # of the comparison with plain vLLM


class InnerClock(AsyncScheduler):
    """vLLM's own methods, timed; ``OwnClock`` puts it between ours and vLLM's."""

    inner_ns = 0

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        start_ns = time.perf_counter_ns()
        output = super().schedule(*args, **kwargs)
        self.inner_ns += time.perf_counter_ns() - start_ns
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        start_ns = time.perf_counter_ns()
        outputs = super().update_from_output(*args, **kwargs)
        self.inner_ns += time.perf_counter_ns() - start_ns
        return outputs


class OwnClock(DynamicBatchScheduler, InnerClock):
    """The production scheduler with vLLM's share of its time taken out."""


class Engine:
    """A scheduler with ``running`` requests that decode, and a step to make it go on."""

    def __init__(self, cls: Callable[..., Any], running: int) -> None:
        options = EngineOptions(
            max_num_seqs=running, max_num_batched_tokens=8192, enable_prefix_caching=False
        )
        plan = parse_policy("paper:l0=buffer", Sla(itl_ms=50), options)
        max_model_len = PROMPT + LENGTH
        self.scheduler = make_scheduler(
            cls,
            plan,
            kv_tokens=running * (max_model_len + 64),
            max_model_len=max_model_len,
            by_priority=False,
        )
        self._make = RequestMaker(plan, max_model_len, 0)
        self._numbers = count()
        for _ in range(running):
            self.add(LENGTH)

    def add(self, output_tokens: int) -> None:
        """One more request waits."""
        request = Request(0.0, PROMPT, output_tokens, max_tokens=output_tokens)
        self.scheduler.add_request(self._make(next(self._numbers), request))

    def step(self) -> int:
        """One step; nanoseconds that the scheduler took."""
        scheduler = self.scheduler
        start_ns = time.perf_counter_ns()
        scheduled = scheduler.schedule()
        took_ns = time.perf_counter_ns() - start_ns
        ids = list(scheduled.num_scheduled_tokens)
        said = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={req_id: index for index, req_id in enumerate(ids)},
            sampled_token_ids=[
                [] if scheduler.requests[req_id].is_prefill_chunk else [TOKEN] for req_id in ids
            ],
        )
        start_ns = time.perf_counter_ns()
        scheduler.update_from_output(scheduled, said)
        return took_ns + time.perf_counter_ns() - start_ns


def own_code_us(running: int, *, mixed: bool) -> list[float]:
    """Own code of each of ``STEPS`` steps, microseconds.

    Args:
        mixed: each step also prefills a request and ends another.
    """
    engine = Engine(OwnClock, running)
    if mixed:
        # The first ones make room one by one, each followed by one of the same length.
        for request in list(engine.scheduler.requests.values()):
            request.max_tokens = 2 + int(request.request_id)
    own = []
    for index in tqdm(range(WARM_UP + STEPS), desc=f"{running} running", leave=False):
        if mixed:
            engine.add(running)
        before_ns = engine.scheduler.inner_ns
        took_ns = engine.step()
        if index >= WARM_UP:
            own.append((took_ns - (engine.scheduler.inner_ns - before_ns)) / 1000)
        if index % 30 == 0:
            engine.scheduler.exchange(None, "r", "g")
    return own


def exchange_us(running: int) -> list[float]:
    """One exchange after every 30 steps, microseconds."""
    engine, took = Engine(DynamicBatchScheduler, running), []
    for index in range(600):
        engine.step()
        if index % 30 == 29:
            start_ns = time.perf_counter_ns()
            engine.scheduler.exchange(None, "r", "g")
            took.append((time.perf_counter_ns() - start_ns) / 1000)
    return took


def plain_ratios(running: int) -> list[float]:
    """Whole scheduler time, ours over vLLM's own, block by block in turn."""
    ours, plain = Engine(DynamicBatchScheduler, running), Engine(AsyncScheduler, running)
    for engine in (ours, plain):
        for _ in range(WARM_UP):
            engine.step()
    ratios = []
    for _ in tqdm(range(BLOCKS), desc="against plain vLLM", leave=False):
        took = [sum(e.step() for _ in range(BLOCK_STEPS)) for e in (ours, plain)]
        ratios.append(took[0] / took[1])
    return ratios


def percentile(values: list[float], percent: int) -> float:
    """The value that ``percent`` % do not pass."""
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def main() -> None:
    rows: list[dict[str, Any]] = []

    def row(id_: str, value: float, unit: str, target: float | None = None) -> None:
        rows.append({"id": id_, "value": round(value, 3), "unit": unit, "target": target})
        print(f"{id_:32} {value:10.2f} {unit}" + (f"   (target {target:g})" if target else ""))

    for running in SIZES:
        own = own_code_us(running, mixed=False)
        target = TARGET_US if running == 256 else None
        row(f"own_code_median_us_{running}", statistics.median(own), "us", target)
        row(f"own_code_p99_us_{running}", percentile(own, 99), "us")
    mixed = own_code_us(256, mixed=True)
    row("own_code_mixed_median_us_256", statistics.median(mixed), "us")
    row("own_code_mixed_p99_us_256", percentile(mixed, 99), "us")
    row("exchange_median_us_256", statistics.median(exchange_us(256)), "us")
    ratios = plain_ratios(256)
    row("plain_ratio_median_256", statistics.median(ratios), "ratio")
    row("plain_ratio_min_256", min(ratios), "ratio")
    row("plain_ratio_max_256", max(ratios), "ratio")
    print(json.dumps({"bench": "scheduler", "rows": rows}))


if __name__ == "__main__":
    main()
