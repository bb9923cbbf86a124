"""Scheduler overhead with a prompt in every step, by setting: ``make bench-scheduler``.

A batch stays full: each request that ends is replaced at once. Time is virtual, on a card that has
time for prompts under the SLA, so decisions do not depend on the speed of this machine. The
controller's law is not counted; its limits arrive with the next sync.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from benchmarks.cost.watch import Watch, watched_scheduler
from controller.classes import parse_classes
from controller.config import Sla
from controller.fleet.loop import ControlLoop
from controller.records import EngineReport, from_wire, to_wire
from replicas.engine.step_sample import step_sample
from replicas.profiles.profile import LinearCost
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.request_maker import RequestMaker
from simulator.virtual.scheduler import VirtualClock, make_scheduler
from simulator.workloads.requests import Request

CARD = LinearCost(fixed_s=0.015, per_decode_s=6e-5, per_prefill_s=2e-5)
PROMPT = 128
LEASE_S = 5.0  # without limits for this long an engine decides by itself
STEPS_PER_SYNC = 15  # a period of 0.5 s at steps of 33 ms
MAX_MODEL_LEN = 4096
WAITING = 200
CLASSES = parse_classes(
    {
        "gold": {"itl_ms": 50, "ttft_ms": 2000},
        "silver": {"itl_ms": 100, "ttft_ms": 6000},
        "batch": {"ttft_ms": 600_000, "default": True},
    }
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The options of an engine and its requests.

    Args:
        by_class: whether the requests are of three classes, a third each.
        spare_tokens: KV memory per request beyond its tokens at the end.
        known_lengths: each request has its output length as ``max_tokens``; else it is unknown.
        waiting: requests beyond the batch.
        caching: whether prefix caching is on.
    """

    sla: Sla
    by_class: bool = False
    spare_tokens: int = 64
    known_lengths: bool = True
    waiting: int = 0
    caching: bool = False


SLA = Sla(itl_ms=50, ttft_ms=2000)
SETTINGS = {
    "no_sla": Setting(Sla()),
    "sla": Setting(SLA),
    "classes": Setting(SLA, by_class=True),
    "short_kv": Setting(SLA, spare_tokens=-104, known_lengths=False),
}
# By running requests, with an SLA that leaves time for their prompts.
QUEUED = {
    running: Setting(Sla(itl_ms=itl_ms, ttft_ms=2000), waiting=WAITING, caching=True)
    for running, itl_ms in ((16, 50), (256, 50), (1024, 150))
}


class FullBatch:
    """An engine with ``running`` requests of as many tokens, of which one ends in each step.

    Attributes:
        watch: measures scheduler overhead.
    """

    def __init__(self, running: int, setting: Setting) -> None:
        self._setting, self.watch = setting, Watch()
        options = EngineOptions(
            max_num_seqs=running,
            max_num_batched_tokens=8192,
            enable_prefix_caching=setting.caching,
        )
        plan = parse_policy("adaptive", setting.sla, options)
        classes = CLASSES if setting.by_class else None
        self._clock, self._output = VirtualClock(), running
        self._scheduler = make_scheduler(
            watched_scheduler(),
            plan,
            kv_tokens=running * (PROMPT + running + setting.spare_tokens),
            max_model_len=MAX_MODEL_LEN,
            by_priority=False,
            classes=classes,
            clock=self._clock,
            watch=self.watch,
        )
        self._make = RequestMaker(plan, MAX_MODEL_LEN, classes)
        self._numbers = count()
        self._left: dict[str, int] = {}  # tokens that each still has to generate
        self._loop, self._config = ControlLoop(), plan.batching
        self._limits: Any = None
        for number in range(running + setting.waiting):
            self._add(2 + min(number, running))

    def _add(self, output_tokens: int) -> None:
        number, setting = next(self._numbers), self._setting
        service = list(CLASSES.by_name)[number % 3] if setting.by_class else None
        max_tokens = output_tokens if setting.known_lengths else None
        request = Request(0.0, PROMPT, output_tokens, max_tokens=max_tokens, service=service)
        self._left[str(number)] = output_tokens
        self._scheduler.add_request(self._make(number, request, self._clock.now_s))

    @property
    def period_s(self) -> float:
        """Seconds between two syncs."""
        return self._config.period_s

    @property
    def now_s(self) -> float:
        """The engine's clock."""
        return self._clock.now_s

    def step(self) -> float:
        """Run one step; returns its scheduler overhead, microseconds."""
        scheduler, before_ns = self._scheduler, self.watch.overhead_ns
        scheduled = scheduler.schedule()
        sample, _ = step_sample(scheduled, 0.0)
        self._clock.now_s += CARD.step_s(*sample.features)
        chunks = scheduler.chunks(scheduled)
        for output in scheduler.finish_step(scheduled, chunks, self._left.__getitem__):
            self._left[output.request_id] -= len(output.new_token_ids)
            if output.finish_reason is not None:
                self._add(self._output)
        return (self.watch.overhead_ns - before_ns) / 1000

    def sync(self) -> float:
        """Sync between two steps: limits in, report out; returns its microseconds."""
        before_ns = self.watch.overhead_ns
        report = self._scheduler.exchange(self._limits, "replica", "group")
        took_us = (self.watch.overhead_ns - before_ns) / 1000
        known = from_wire(EngineReport, report)
        self._limits = to_wire(self._loop.exchange(known, self._config, self.now_s))
        return took_us


def overhead_full_us(setting: Setting, running: int, steps: Iterable[int]) -> list[float]:
    """Scheduler overhead of each of these steps, microseconds, once the batch is full."""
    batch, overhead = FullBatch(running, setting), []
    for index in range(running):  # until the first ones have ended
        if index % STEPS_PER_SYNC == 0:
            batch.sync()
        batch.step()
    for index in steps:
        overhead.append(batch.step())
        if index % STEPS_PER_SYNC == 0:
            batch.sync()
    return overhead


def step_delay_us(running: int, steps: Iterable[int], *, leased: bool) -> list[float]:
    """All overhead that delays each of these steps, microseconds, with a queue.

    Args:
        leased: sync with a controller; else the law runs inline.
    """
    batch, delays = FullBatch(running, QUEUED[running]), list[float]()
    due_s = 0.0

    def step() -> float:
        nonlocal due_s
        sync_us = 0.0
        if leased and batch.now_s >= due_s:
            due_s += batch.period_s
            sync_us = batch.sync()
        return sync_us + batch.step()

    while batch.now_s < 2 * LEASE_S:
        step()
    for _ in steps:
        delays.append(step())
    return delays
