"""Contests as data: workload, engine, figure, rivals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from benchmarks.contests.by_class import holds, spread_over
from benchmarks.contests.climb import grid
from benchmarks.contests.disturbances import NOTHING, Disturbed, workload_of
from benchmarks.contests.race import Race, Trial
from benchmarks.contests.routing import NO_LINK, ByClass, ByHeadroom
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
from replicas.profiles.profile_file import load_profile
from serve_app.routing.gather import ends_of
from serve_app.routing.settings import promised
from simulator.replay.capacity import LOWEST, TOP, SearchTraffic, holds_at, search_traffic
from simulator.replay.engine import replay
from simulator.replay.fleet import Fleet
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import j_of, summarise
from simulator.replay.verdict import Target
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.scenario import Scenario
from simulator.virtual.trace import Trace
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
class Contest:
    """One comparison.

    Attributes:
        ours: the policy under test.
        others: policies that are not tuned.
        rivals: policies that are tuned for this scenario.
        steps: relative distances to the neighbours of a setting; empty: only the first points are
            tried.
        each_seed: rivals that are tuned again for each seed.
    """

    name: str

    part: ClassVar[str]
    figure: ClassVar[str]
    ours: ClassVar[str] = ADAPTIVE
    others: ClassVar[tuple[str, ...]] = (STATIC,)
    rivals: ClassVar[tuple[str, ...]] = (STATIC,)
    each_seed: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[tuple[float, ...]] = (0.12, 0.04)

    def trial(self, seed: int, small: bool) -> Trial:
        """Settings tried on the requests of one seed."""
        raise NotImplementedError

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        """The first settings of the search for a rival's best one.

        Args:
            static: the best static setting of this scenario; None: unknown.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Capacity(Contest):
    """The highest rate inside a latency SLA.

    Args:
        itl_ms: the SLA at p99.
        run_s: least length of a run, seconds of virtual time.
        top: the highest rate of a search, times the fluid limit.
    """

    profile: str
    workload: str
    itl_ms: float = PAPER_MS
    run_s: float = 150.0
    top: float = TOP

    part = "capacity"
    figure = "requests/s with p99 of every gap inside the SLA and a median delay of 2 s at most"
    rivals = (STATIC, "paper:l0=buffer", *SWEEPS)
    each_seed = (STATIC,)

    def traffic(self, seed: int, small: bool) -> tuple[SearchTraffic, Scenario, Target]:
        """The requests, the scenario that they are served in, and the target.

        The prompt tokens left to compute may be twice those that first-come-first-served leaves on
        average at a median delay of 2 s. Otherwise a rival could leave prompts out.
        """
        scenario = Scenario(load_profile(self.profile))
        target = Target(Sla(itl_ms=self.itl_ms), max_left_s=4.0)
        least, run_s = (40, 20.0) if small else (200, self.run_s)
        workload = load_workload(self.workload)
        traffic = search_traffic(
            workload, scenario, target, seed=seed, least=least, least_run_s=run_s, top=self.top
        )
        return traffic, scenario, target

    def trial(self, seed: int, small: bool) -> Trial:
        traffic, scenario, target = self.traffic(seed, small)
        limit = traffic.fluid_limit_per_s

        def holds(spec: str, rate_per_s: float) -> bool:
            plan = parse_policy(spec, target.sla, engine_of(scenario.profile))
            return holds_at(traffic, plan, scenario, target, rate_per_s)

        return Race(holds, 0.9 * limit, limit * LOWEST, limit * traffic.top)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        traffic, scenario, target = self.traffic(PILOT_SEED, small=False)
        if static is not None and rival in SWEEPS:
            return first_points(rival, static, scenario.profile)
        stats = length_stats(traffic.requests)
        itl_s = target.sla.itl_s or math.inf
        return grid(rival, scenario.profile, stats, itl_s, traffic.fluid_limit_per_s)


@dataclass(frozen=True)
class Shifting(Contest):
    """Consecutive workloads, each close to its own limit."""

    part = "shifting"
    figure = "requests/s that end inside the SLA"
    others = ("static", "adaptive:step_aside=false")
    # `adaptive` deprioritizes late requests by default, vLLM does not.
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
            trace = replay(requests, parse_policy(spec, sla, engine_of(profile)), Scenario(profile))
            return summarise(spec, trace, sla).goodput_per_s or 0.0

        return Trial(goodput)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        caps, chunks = (40, 60, 80, 118), (118, 130, 142, 156)
        return [Point(rival, ((CAP, cap), (CHUNK, chunk))) for cap in caps for chunk in chunks]


@dataclass(frozen=True)
class Offline(Contest):
    """All requests at t = 0, no SLA, and KV memory so small that vLLM's default loses requests.

    Args:
        workloads: consecutive, with an equal share of the requests each.
        max_tokens: what clients send; an exact one tells every policy the answer's length.
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
                spec, replay(requests, plan, Scenario(profile)), Sla()
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
GATHERED, EVEN, SEPARATE = "gathered/", "even/", "separate/"
_GAPS: dict[str, Value] = {
    "slack": "gaps",
    "least_tokens": 32,
    "token_step": 16,
    "low_memory_tokens": 0,
}


@dataclass(frozen=True)
class Classes(Contest):
    """Three classes on three engines: the highest rate per engine at which all keep their SLOs.

    A policy's name begins with the routing: `gathered` (class affinity), `even` (most headroom) or
    `separate` (an engine for each class).
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

    def traffic(self, seed: int, small: bool) -> tuple[SearchTraffic, Scenario]:
        """Requests of a run of all engines; its fluid limit is one engine's."""
        scenario = Scenario(load_profile(self.profile), classes=CLASSES)
        run_s, least = (20.0, 40) if small else (120.0, 400)
        workload, target = load_workload(self.workload), Target(Sla(itl_ms=PAPER_MS))

        def drawn(n: int) -> SearchTraffic:
            return search_traffic(workload, scenario, target, seed=seed, least=n, least_run_s=run_s)

        limit = drawn(least).fluid_limit_per_s
        traffic = drawn(math.ceil(self.engines * self.top * limit * run_s))
        return replace(traffic, least=least, fluid_limit_per_s=limit), scenario

    def run_at(
        self, spec: str, traffic: SearchTraffic, scenario: Scenario, seed: int, rate_per_s: float
    ) -> Trace:
        """The replay at a rate per engine."""
        routed, _, policy = spec.partition("/")
        requests = spread_over(traffic.requests_at(self.engines * rate_per_s), CLASSES, seed)
        ends = ends_of(promised(CLASSES)) if f"{routed}/" == GATHERED else {}
        router: ByHeadroom | ByClass = ByHeadroom(self.engines, seed, ends)
        if f"{routed}/" == SEPARATE:
            router = ByClass(list(CLASSES.by_name))
        if not policy.startswith(ADAPTIVE):  # rivals have their own order
            requests = [replace(r, priority=0) for r in requests]
        plan = parse_policy(policy, Sla(), engine_of(scenario.profile))
        return Fleet(requests, plan, scenario, self.engines, NO_LINK, router).run()

    def trial(self, seed: int, small: bool) -> Trial:
        traffic, scenario = self.traffic(seed, small)
        limit = traffic.fluid_limit_per_s

        def held(spec: str, rate_per_s: float) -> bool:
            return holds(self.run_at(spec, traffic, scenario, seed, rate_per_s), CLASSES)

        return Race(held, limit, limit * LOWEST, limit * self.top)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        tried = [(16, 1.0, 0), (16, 1.0, 8), (16, 1.03, 1), (2, 1.0, 0), (2, 1.03, 1)]
        base = Point(rival)
        return [base] + [
            base.but({**_GAPS, "token_step": step, "margin": margin, "ms_per_token": ms})
            for step, margin, ms in tried
        ]


@dataclass(frozen=True)
class Disturbance(Contest):
    """Poisson arrivals on an engine with disturbed steps.

    Args:
        itl_ms: the ITL target.
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
        """Means of the workload and requests/s: equal for all seeds."""
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
        scenario = Scenario(
            profile, disturbances=self.disturbed.disturbances, disturbance_seed=seed
        )

        def inverse_j(spec: str) -> float:
            trace = replay(requests, parse_policy(spec, sla, engine_of(profile)), scenario)
            return 1 / max(j_of(trace, sla) or 0.0, 1e-9)

        return Trial(inverse_j)

    def first(self, rival: str, static: Point | None) -> Sequence[Point]:
        stats, rate_per_s = self.load
        profile = load_profile(self.profile)
        return grid(rival, profile, stats, self.itl_ms / 1000, rate_per_s)
