"""Own code with a prompt in every step, by what an engine has to keep: ``make bench-scheduler``.

A batch stays full: who ends is followed by another at once. Time is virtual, on a card that leaves
room for the prompts under the SLA, so what is decided does not go by how fast this machine is.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from controller.classes import parse_classes
from controller.config import Sla
from controller.records import BatchLimits, to_wire
from replicas.engine.step_sample import step_sample
from replicas.profiles.profile import LinearCost
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.request_maker import RequestMaker
from simulator.virtual.scheduler import VirtualClock, make_scheduler, watched_scheduler
from simulator.virtual.watch import Watch
from simulator.workloads.requests import Request

CARD = LinearCost(fixed_s=0.015, per_decode_s=6e-5, per_prefill_s=2e-5)
PROMPT, OUTPUT = 128, 256
WARM_UP = OUTPUT  # steps: the first ones are gone then
STEPS_PER_EXCHANGE = 15  # a period of 0.5 s at steps of 33 ms
MAX_MODEL_LEN = 4096
CLASSES = parse_classes(
    {
        "gold": {"itl_ms": 50, "ttft_ms": 2000},
        "silver": {"itl_ms": 100, "ttft_ms": 6000},
        "batch": {"ttft_ms": 600_000, "default": True},
    }
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is kept.

    Args:
        by_class: the requests are of three classes, a third each.
        kv_tokens: KV memory for each request, tokens; it holds 256 on average, 384 at its end.
        told: each request brings its length as ``max_tokens``; else nobody knows.
    """

    sla: Sla
    by_class: bool = False
    kv_tokens: int = 448
    told: bool = True


SLA = Sla(itl_ms=50, ttft_ms=2000)
SETTINGS = {
    "no_sla": Setting(Sla()),
    "sla": Setting(SLA),
    "classes": Setting(SLA, by_class=True),
    "paced": Setting(Sla(itl_ms=50, ttft_ms=2000, delivery="paced")),
    "short_kv": Setting(SLA, kv_tokens=280, told=False),
}


class FullBatch:
    """An engine with ``running`` requests, of which one ends in each step.

    Attributes:
        watch: runs in own code.
    """

    def __init__(self, running: int, setting: Setting) -> None:
        self._setting, self.watch = setting, Watch()
        options = EngineOptions(
            max_num_seqs=running, max_num_batched_tokens=8192, enable_prefix_caching=False
        )
        plan = parse_policy("adaptive", setting.sla, options)
        classes = CLASSES if setting.by_class else None
        self._clock = VirtualClock()
        self._scheduler = make_scheduler(
            watched_scheduler(),
            plan,
            kv_tokens=running * setting.kv_tokens,
            max_model_len=MAX_MODEL_LEN,
            by_priority=False,
            classes=classes,
            clock=self._clock,
            watch=self.watch,
        )
        self._make = RequestMaker(plan, MAX_MODEL_LEN, 0, classes)
        self._numbers = count()
        self._left: dict[str, int] = {}  # tokens that each is still to generate
        self._limits = to_wire(
            BatchLimits(lease_s=1e6, max_running=running, token_budget=None, reason="memory")
        )
        for number in range(running):
            self._add(2 + number)

    def _add(self, output_tokens: int) -> None:
        number, setting = next(self._numbers), self._setting
        service = list(CLASSES.by_name)[number % 3] if setting.by_class else None
        told = output_tokens if setting.told else None
        request = Request(0.0, PROMPT, output_tokens, max_tokens=told, service=service)
        self._left[str(number)] = output_tokens
        self._scheduler.add_request(self._make(number, request, self._clock.now_s))

    def step(self) -> float:
        """One step; microseconds of own code in it."""
        scheduler, before_ns = self._scheduler, self.watch.own_ns
        scheduled = scheduler.schedule()
        sample, _ = step_sample(scheduled, 0.0)
        self._clock.now_s += CARD.step_s(*sample.features)
        chunks = scheduler.chunks(scheduled)
        for output in scheduler.finish_step(scheduled, chunks, self._left.__getitem__):
            self._left[output.request_id] -= len(output.new_token_ids)
            if output.finish_reason is not None:
                self._add(OUTPUT)
        return (self.watch.own_ns - before_ns) / 1000

    def exchange(self) -> None:
        """What the channel does between two steps: limits in, report out."""
        self._scheduler.exchange(self._limits, "replica", "group")


def own_code_full_us(setting: Setting, running: int, steps: Iterable[int]) -> list[float]:
    """Own code of each of these steps, microseconds, once the batch is full."""
    batch = FullBatch(running, setting)
    batch.exchange()
    for _ in range(WARM_UP):
        batch.step()
    own = []
    for index in steps:
        own.append(batch.step())
        if index % STEPS_PER_EXCHANGE == 0:
            batch.exchange()
    return own
