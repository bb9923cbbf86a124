"""Scenarios as data: what is served on which engine, by what it is measured, against whom."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from benchmarks.contests.by_class import holds, spread_over
from benchmarks.contests.climb import grid
from benchmarks.contests.disturbances import NOTHING, Disturbed, workload_of
from benchmarks.contests.race import Race, Trial
from benchmarks.contests.routing import ByClass, ByRoom
from benchmarks.contests.sweeps import (
    CAP,
    CHUNK,
    OFFLINE,
    SWEEPS,
    Point,
    Value,
    first_points,
    offline_points,
)
from benchmarks.report.seeds import PILOT_SEED
from controller.classes import parse_classes
from controller.config import Sla
from controller.roles import Transfer
from replicas.profiles.profile_file import load_profile
from serve_app.routing.gather import ends_of
from serve_app.routing.settings import promised
from simulator.replay.capacity import LOWEST, TOP, Course, holds_at, make_course
from simulator.replay.engine import replay
from simulator.replay.fleet import Fleet, FleetTrace
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import j_of, summarise
from simulator.replay.verdict import Target
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.max_tokens import SPREAD, MaxTokens
from simulator.workloads.requests import LengthStats, Request, length_stats
from simulator.workloads.traffic import Phase, draw_phases, draw_requests, draw_traffic

PAPER, H100 = "paper-fig3", "h100-Llama-2-70b-hf-tp4"
AZURE = "azure-2023-conversation"
PAPER_MS, H100_MS = 50.0, 43.3
ADAPTIVE, STATIC = "adaptive", "static"
LEAST = 1e-3  # of a value, so that a ratio is finite


@dataclass(frozen=True)
class Scenario:
    """One comparison.

    Attributes:
        ours: the policy that is judged.
        others: as they are, with nothing tuned.
        rivals: tuned for this very scenario.
        steps: how far neighbours of a setting are looked for, share; none: of the first points.
        each_draw: of the rivals, those tuned again for every draw.
    """

    name: str

    part: ClassVar[str]
    figure: ClassVar[str]
    ours: ClassVar[str] = ADAPTIVE
    others: ClassVar[tuple[str, ...]] = (STATIC,)
    rivals: ClassVar[tuple[str, ...]] = (STATIC,)
    each_draw: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[tuple[float, ...]] = (0.12, 0.04)

    def trial(self, seed: int, small: bool) -> Trial:
        """One draw, on which settings are tried."""
        raise NotImplementedError

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        """Where the search for a rival's setting begins.

        Args:
            static: the best static setting of this scenario, where it is known.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Capacity(Scenario):
    """The highest rate inside a latency SLA.

    Args:
        itl_ms: the SLA at p99.
        run_s: how long a run is at least, seconds of virtual time.
        top: where searches end, times the fluid limit.
    """

    profile: str
    workload: str
    itl_ms: float = PAPER_MS
    run_s: float = 150.0
    top: float = TOP

    part = "capacity"
    figure = "requests/s with p99 of every gap inside the SLA and a median delay of 2 s at most"
    rivals = (STATIC, "paper:l0=buffer", *SWEEPS)
    each_draw = (STATIC,)

    def course(self, seed: int, small: bool) -> tuple[Course, Ground, Target]:
        """The requests, what they are served on, and what is to hold.

        A rival has to compute the prompts that come: twice what is left on average in the order of
        arrival with a median delay of 2 s may be left.
        """
        ground = Ground(load_profile(self.profile))
        target = Target(Sla(itl_ms=self.itl_ms), max_left_s=4.0)
        least, run_s = (40, 20.0) if small else (200, self.run_s)
        workload = load_workload(self.workload)
        course = make_course(
            workload, ground, target, seed=seed, least=least, least_run_s=run_s, top=self.top
        )
        return course, ground, target

    def trial(self, seed: int, small: bool) -> Trial:
        course, ground, target = self.course(seed, small)
        limit = course.fluid_limit_per_s

        def holds(spec: str, rate_per_s: float) -> bool:
            plan = parse_policy(spec, target.sla, engine_of(ground.profile))
            return holds_at(course, plan, ground, target, rate_per_s)

        return Race(holds, 0.9 * limit, limit * LOWEST, limit * course.top)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        course, ground, target = self.course(PILOT_SEED, small=False)
        if static is not None and rival in SWEEPS:
            return first_points(rival, static, ground.profile)
        stats = length_stats(course.traffic.requests)
        itl_s = target.sla.itl_s or math.inf
        return grid(rival, ground.profile, stats, itl_s, course.fluid_limit_per_s)


@dataclass(frozen=True)
class Shifting(Scenario):
    """Workloads one after the other, each close to its own limit."""

    part = "shifting"
    figure = "requests/s that end inside the SLA"
    others = ("static", "adaptive:step_aside=false")
    # Late requests step aside, as `adaptive` has it by itself and vLLM does not.
    rivals = (STATIC, "static:step_aside=true", "paper:step_aside=true,l0=buffer")

    def trial(self, seed: int, small: bool) -> Trial:
        profile, sla = load_profile(PAPER), Sla(itl_ms=PAPER_MS, ttft_ms=5000)

        def phase(name: str) -> Phase:
            workload = load_workload(name)
            stats = length_stats(draw_traffic(workload, 5000, None, PILOT_SEED).requests)
            limit = fluid_limit_per_s(profile, stats, sla.itl_s)
            return Phase(workload, 0.95 * limit, 10.0 if small else 90.0)

        mixes = "exponential:257,62", "exponential:257,447", AZURE, "exponential:257,62"
        requests = draw_phases([phase(name) for name in mixes], None, seed)

        def goodput(spec: str) -> float:
            trace = replay(requests, parse_policy(spec, sla, engine_of(profile)), Ground(profile))
            return summarise(spec, trace, sla).goodput_per_s or 0.0

        return Trial(goodput)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        caps, chunks = (40, 60, 80, 118), (118, 130, 142, 156)
        return [Point(rival, ((CAP, cap), (CHUNK, chunk))) for cap in caps for chunk in chunks]


@dataclass(frozen=True)
class Offline(Scenario):
    """All requests at t = 0, no SLA, and KV memory so small that vLLM's default loses requests.

    Args:
        workloads: an equal share of the requests each, one after the other.
        max_tokens: what clients allow; an exact one tells every policy the answer's length.
    """

    kv_tokens: int
    workloads: tuple[str, ...]
    requests: int = 1500
    max_tokens: MaxTokens = SPREAD

    part = "offline"
    figure = "output tokens/s"
    others = (STATIC, "paper:memory=live")
    rivals = tuple(OFFLINE)
    steps = ()

    def drawn(self, seed: int, small: bool) -> list[Request]:
        """The requests."""
        total = 60 if small else min(self.requests, 500) if seed == PILOT_SEED else self.requests
        each = total // len(self.workloads)
        return [
            request
            for k, name in enumerate(self.workloads)
            for request in draw_requests(
                load_workload(name), each, math.inf, None, seed + 1000 * k, self.max_tokens
            )
        ]

    def trial(self, seed: int, small: bool) -> Trial:
        profile, requests = (
            load_profile(PAPER).with_kv_tokens(self.kv_tokens),
            self.drawn(seed, small),
        )

        def tokens_per_s(spec: str) -> float:
            plan = parse_policy(spec, Sla(), engine_of(profile))
            return summarise(
                spec, replay(requests, plan, Ground(profile)), Sla()
            ).output_tokens_per_s

        return Trial(tokens_per_s)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        return offline_points(rival)


CLASSES = parse_classes(
    {
        "gold": {"itl_ms": 50, "ttft_ms": 2000, "priority": 0},
        "silver": {"itl_ms": 100, "ttft_ms": 6000, "priority": 1},
        "batch": {"ttft_ms": 600_000, "priority": 2, "default": True},
    }
)
NO_LINK = Transfer(1.0, 1.0)  # no KV goes from engine to engine
GATHERED, EVEN, SEPARATE = "gathered/", "even/", "separate/"
_GAPS: dict[str, Value] = {
    "slack": "gaps",
    "least_tokens": 32,
    "token_step": 16,
    "low_memory_tokens": 0,
}


@dataclass(frozen=True)
class Classes(Scenario):
    """Three classes on three engines: the rate of an engine at which all have what is promised.

    A policy comes after how requests are routed: `gathered` by class, `even` where most room is,
    `separate`: an engine for each class.
    """

    profile: str
    workload: str

    part = "classes"
    figure = "requests/s of an engine with 99% of each class in time and no queue that grows"
    ours = f"{GATHERED}{ADAPTIVE}"
    others = (f"{SEPARATE}{ADAPTIVE}", f"{EVEN}{ADAPTIVE}")
    rivals = (f"{GATHERED}qoserve", f"{EVEN}qoserve")
    steps = ()
    engines: ClassVar[int] = 3
    top: ClassVar[float] = 2.5

    def course(self, seed: int, small: bool) -> tuple[Course, Ground]:
        """Requests of a run of all engines; its fluid limit is one engine's."""
        ground = Ground(load_profile(self.profile), classes=CLASSES)
        run_s, least = (20.0, 40) if small else (120.0, 400)
        workload, target = load_workload(self.workload), Target(Sla(itl_ms=PAPER_MS))

        def drawn(n: int) -> Course:
            return make_course(workload, ground, target, seed=seed, least=n, least_run_s=run_s)

        limit = drawn(least).fluid_limit_per_s
        course = drawn(math.ceil(self.engines * self.top * limit * run_s))
        return replace(course, least=least, fluid_limit_per_s=limit), ground

    def run_at(
        self, spec: str, course: Course, ground: Ground, seed: int, rate_per_s: float
    ) -> FleetTrace:
        """The replay at a rate of each engine."""
        routed, _, policy = spec.partition("/")
        asked = course.requests_at(self.engines * rate_per_s)
        requests = spread_over(asked, CLASSES, seed)
        ends = ends_of(promised(CLASSES)) if f"{routed}/" == GATHERED else {}
        router: ByRoom | ByClass = ByRoom(self.engines, seed, ends)
        if f"{routed}/" == SEPARATE:
            router = ByClass(list(CLASSES.by_name))
        if not policy.startswith(ADAPTIVE):  # it has an order of its own
            requests = [replace(r, priority=0) for r in requests]
        plan = parse_policy(policy, Sla(), engine_of(ground.profile))
        return Fleet(requests, plan, ground, self.engines, NO_LINK, router).run()

    def trial(self, seed: int, small: bool) -> Trial:
        course, ground = self.course(seed, small)
        limit = course.fluid_limit_per_s

        def held(spec: str, rate_per_s: float) -> bool:
            return holds(self.run_at(spec, course, ground, seed, rate_per_s).trace, CLASSES)

        return Race(held, limit, limit * LOWEST, limit * self.top)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        tried = [(16, 1.0, 0), (16, 1.0, 8), (16, 1.03, 1), (2, 1.0, 0), (2, 1.03, 1)]
        base = Point(rival)
        return [base] + [
            base.but({**_GAPS, "token_step": step, "margin": margin, "ms_per_token": ms})
            for step, margin, ms in tried
        ]


@dataclass(frozen=True)
class Disturbance(Scenario):
    """Poisson arrivals where steps are disturbed.

    Args:
        itl_ms: D.
        rate_per_s: requests/s; None: ``of_limit`` of the fluid limit, of undisturbed steps.
    """

    profile: str
    workload: str
    itl_ms: float
    rate_per_s: float | None = None
    of_limit: float = 0.0
    disturbed: Disturbed = NOTHING

    part = "disturbed"
    figure = "1/J, J = max(late share / allowed share, 1) x mean TTFT in s"

    @property
    def load(self) -> tuple[LengthStats, float]:
        """Means of the workload and requests/s: the same for every draw."""
        sample = draw_traffic(workload_of(self.workload), 4000, 1.0, 0).requests
        stats = length_stats(sample)
        limit = fluid_limit_per_s(load_profile(self.profile), stats, self.itl_ms / 1000)
        return stats, self.rate_per_s or self.of_limit * limit

    def count(self, rate_per_s: float) -> int:
        """1,000 requests, 4,000 D and 5 slow phases at least."""
        every_s = (slow.mean_s / slow.share for slow in self.disturbed.disturbances.slow)
        least_s = max(4 * self.itl_ms, 5 * max(every_s, default=0.0))
        return math.ceil(max(1000, rate_per_s * least_s))

    def trial(self, seed: int, small: bool) -> Trial:
        profile, sla, rate_per_s = load_profile(self.profile), Sla(itl_ms=self.itl_ms), self.load[1]
        n = 50 if small else self.count(rate_per_s)
        requests = draw_traffic(workload_of(self.workload), n, 1.0, seed).at(rate_per_s)
        ground = Ground(profile, disturbances=self.disturbed.disturbances, disturbance_seed=seed)

        def inverse_j(spec: str) -> float:
            trace = replay(requests, parse_policy(spec, sla, engine_of(profile)), ground)
            return 1 / max(j_of(trace, sla) or 0.0, 1e-9)

        return Trial(inverse_j)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        stats, rate_per_s = self.load
        profile = load_profile(self.profile)
        return grid(rival, profile, stats, self.itl_ms / 1000, rate_per_s)
