"""What the scheduler's own code costs per step: ``make bench-scheduler``.

The real scheduler and KV manager run in this process without a model. Own code is all that
``DynamicBatchScheduler`` adds to vLLM's scheduler: its methods less vLLM's inside them, and its
hooks inside vLLM's. As a check on that, whole steps are compared with those of plain vLLM.
``step_delay`` is own code with all that delays a step: the exchange before it, or the law inline
where there is no controller. Times are CPU time of this thread: what else runs on the machine is
not in them.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from tqdm import tqdm
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import ModelRunnerOutput

from benchmarks.cost.full_batch import SETTINGS, own_code_full_us, step_delay_us
from controller.config import Sla
from controller.records import BatchLimits, to_wire
from replicas.engine.scheduler import DynamicBatchScheduler
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.request_maker import RequestMaker
from simulator.virtual.scheduler import TOKEN, make_scheduler
from simulator.virtual.watch import Watch, timed
from simulator.workloads.requests import Request

SIZES = (16, 256, 1024)
TARGET_US = 100.0  # the median at 256 running
FULL_TARGETS_US = 60.0, 150.0  # with prompts in every step, at 256 running: median and p99
DELAY_TARGET_US = 200.0  # p99 at 256 running
WARM_UP, STEPS = 50, 1000
STEPS_PER_EXCHANGE = 30  # a period of 0.5 s at steps of 17 ms
BLOCKS, BLOCK_STEPS = 30, 20  # of the comparison with plain vLLM
PROMPT, LENGTH = 128, WARM_UP + STEPS + BLOCKS * BLOCK_STEPS

# vLLM's timed methods come between ours and vLLM's in the order of lookup.
TimedScheduler = type(
    "TimedScheduler",
    (timed(DynamicBatchScheduler, ours=True), timed(AsyncScheduler, ours=False)),
    {"watch": Watch()},
)


class Engine:
    """A scheduler with ``running`` requests that decode, and a step to make it go on."""

    def __init__(
        self, cls: Callable[..., Any], running: int, policy: str = "paper:l0=buffer"
    ) -> None:
        options = EngineOptions(
            max_num_seqs=running, max_num_batched_tokens=8192, enable_prefix_caching=False
        )
        plan = parse_policy(policy, Sla(itl_ms=50), options)
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
        self._limits = to_wire(
            BatchLimits(lease_s=1e6, max_running=running, token_budget=None, reason="memory")
        )
        for _ in range(running):
            self.add(LENGTH)

    def add(self, output_tokens: int) -> None:
        """One more request waits."""
        request = Request(0.0, PROMPT, output_tokens, max_tokens=output_tokens)
        self.scheduler.add_request(self._make(next(self._numbers), request, 0.0))

    def step(self) -> int:
        """One step; nanoseconds that the scheduler took."""
        scheduler = self.scheduler
        start_ns = time.thread_time_ns()
        scheduled = scheduler.schedule()
        took_ns = time.thread_time_ns() - start_ns
        ids = list(scheduled.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={req_id: index for index, req_id in enumerate(ids)},
            sampled_token_ids=[
                [] if scheduler.requests[req_id].is_prefill_chunk else [TOKEN] for req_id in ids
            ],
        )
        start_ns = time.thread_time_ns()
        outputs = scheduler.update_from_output(scheduled, result)
        took_ns += time.thread_time_ns() - start_ns
        del outputs  # freed outside of the time, as in EngineCore, which sends them off first
        return took_ns

    def exchange(self) -> None:
        """What the channel does between two steps: limits in, report out."""
        self.scheduler.exchange(self._limits, "replica", "group")


def own_code_us(running: int, *, mixed: bool, policy: str = "paper:l0=buffer") -> list[float]:
    """Own code of each of ``STEPS`` steps, microseconds.

    Args:
        mixed: in each step a request comes and is prefilled, and another one ends.
    """
    engine = Engine(TimedScheduler, running, policy)
    watch = engine.scheduler.watch
    engine.exchange()
    if mixed:
        # The first ones make room one by one, each followed by one of the same length.
        for request in list(engine.scheduler.requests.values()):
            request.max_tokens = 2 + int(request.request_id)
    own = []
    for index in progress(WARM_UP + STEPS, f"{running} running{', mixed' if mixed else ''}"):
        before_ns = watch.own_ns
        if mixed:
            engine.add(running)
        engine.step()
        if index >= WARM_UP:
            own.append((watch.own_ns - before_ns) / 1000)
        if index % STEPS_PER_EXCHANGE == 0:
            engine.exchange()
    return own


def exchange_us(running: int) -> list[float]:
    """One exchange after every ``STEPS_PER_EXCHANGE`` steps, microseconds."""
    engine, took = Engine(DynamicBatchScheduler, running), []
    for index in progress(STEPS, "exchange"):
        engine.step()
        if index % STEPS_PER_EXCHANGE == 0:
            start_ns = time.thread_time_ns()
            engine.exchange()
            took.append((time.thread_time_ns() - start_ns) / 1000)
    return took


def plain_comparison(running: int) -> tuple[list[float], list[float]]:
    """Whole scheduler time of ours and of plain vLLM, step by step in turn.

    Returns:
        Per block, ours over plain, and ours less plain in microseconds per step.
    """
    ours, plain = Engine(DynamicBatchScheduler, running), Engine(Scheduler, running)
    ours.exchange()
    for engine in (ours, plain):
        for _ in range(WARM_UP):
            engine.step()
    ratios, differences_us = [], []
    for block in progress(BLOCKS, "against plain vLLM"):
        # Who goes first changes, so that neither always finds the other's data in the cache.
        order = (ours, plain) if block % 2 else (plain, ours)
        took = {ours: 0, plain: 0}
        for _ in range(BLOCK_STEPS):
            for engine in order:
                took[engine] += engine.step()
        ratios.append(took[ours] / took[plain])
        differences_us.append((took[ours] - took[plain]) / BLOCK_STEPS / 1000)
    return ratios, differences_us


def progress(steps: int, what: str) -> Iterable[int]:
    """Counts the steps and shows how far they are."""
    return tqdm(range(steps), desc=what, leave=False, mininterval=0.5)


def percentile(values: list[float], percent: int) -> float:
    """The value that ``percent`` % do not pass."""
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def main() -> None:
    rows: list[dict[str, Any]] = []

    def row(id_: str, value: float, unit: str = "us", target: float | None = None) -> None:
        rows.append({"id": id_, "value": round(value, 3), "unit": unit, "target": target})
        print(f"{id_:32} {value:10.2f} {unit}" + (f"   (target {target:g})" if target else ""))

    gc.freeze()  # as EngineCore does at the end of its start
    for name, mixed in (("own_code", False), ("own_code_mixed", True)):
        for running in SIZES:
            own = own_code_us(running, mixed=mixed)
            target = TARGET_US if running == 256 and not mixed else None
            row(f"{name}_median_us_{running}", statistics.median(own), target=target)
            row(f"{name}_p99_us_{running}", percentile(own, 99))
    for name, setting in SETTINGS.items():
        own = own_code_full_us(setting, 256, progress(STEPS, name))
        figures = {"median": statistics.median(own), "p99": percentile(own, 99)}
        for (figure, value), target in zip(figures.items(), FULL_TARGETS_US, strict=True):
            row(f"own_code_full_{name}_{figure}_us_256", value, target=target)
    for name, leased in (("leased", True), ("inline", False)):
        for running in SIZES:
            steps = progress(STEPS // 2, f"{name}, {running}")
            delays = step_delay_us(running, steps, leased=leased)
            target = DELAY_TARGET_US if running == 256 else None
            row(f"step_delay_{name}_median_us_{running}", statistics.median(delays))
            row(f"step_delay_{name}_p99_us_{running}", percentile(delays, 99), target=target)
    row("exchange_median_us_256", statistics.median(exchange_us(256)))
    ratios, differences_us = plain_comparison(256)
    row("plain_ratio_256", statistics.median(ratios), "ratio")
    row("plain_ratio_p10_256", percentile(ratios, 10), "ratio")
    row("plain_ratio_p90_256", percentile(ratios, 90), "ratio")
    row("plain_difference_us_256", statistics.median(differences_us))
    print(json.dumps({"bench": "scheduler", "rows": rows}))


if __name__ == "__main__":
    main()
