"""A fleet under agents, in virtual time: one replay by one way to choose a replica."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from benchmarks.agents.rivals import RoundRobin, Sticky, TwoOutstanding
from controller.config import Sla
from replicas.engine.prefixes import PREFIX_TOKENS
from replicas.profiles.profile import StepCost
from replicas.profiles.profile_file import load_profile
from serve_app.routing.replica_load import ReplicaLoad
from simulator.replay.fleet import Router, Steers, replay_fleet, together
from simulator.replay.measure import meets
from simulator.virtual.ground import Ground
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.conversations import SYSTEM_TOKENS
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

ENGINES, PROFILE, POLICY = 4, "paper-fig3", "adaptive"
SLA = Sla(itl_ms=50.0, ttft_ms=1000.0)
COLD_S, END_S, AFTER_S = 60.0, 160.0, 10.0
ALONE = "exponential:257,62"
AGENTS, INDEPENDENT, SHARED = "agents", "independent", "shared"
OURS, WITHOUT, STICKY = "held", "headroom", "sticky"
ARMS: dict[str, Callable[[int], Steers]] = {
    OURS: lambda seed: Router(ENGINES, seed, {}, prefix_affinity=True),
    WITHOUT: lambda seed: Router(ENGINES, seed, {}),
    STICKY: lambda seed: Sticky(ENGINES),
    "two_outstanding": lambda seed: TwoOutstanding(ENGINES, seed),
    "round_robin": lambda seed: RoundRobin(ENGINES),
}
EQUAL, SMALL, SLOW, JOINS, LEAVES = "equal", "small", "slow", "joins", "leaves"
SMALL_KV, SLOWER, CHANGE_S = 100_000, 1.5, 110.0


class Changing:
    """A fleet whose first engine comes, or is sent nothing more, at ``CHANGE_S``."""

    def __init__(self, router: Router | Sticky, fleet: str) -> None:
        self._router, self._fleet = router, fleet

    def pick(self, request: Request, now_s: float) -> int:
        """The router's choice among the engines that are there."""
        there = (now_s < CHANGE_S) == (self._fleet == LEAVES)
        self._router.places = range(0 if there else 1, ENGINES)
        return self._router.pick(request, now_s)

    def hear(self, engine: int, room: ReplicaLoad | None, now_s: float) -> None:
        """What an engine says of its room."""
        self._router.hear(engine, room, now_s)


@dataclass(frozen=True, slots=True)
class SlowCost:
    """Steps that take ``SLOWER`` times as long."""

    cost: StepCost

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """Seconds of a step."""
        return SLOWER * self.cost.step_s(decodes, kv, prefill, context)


@dataclass(frozen=True, slots=True)
class AgentsTask:
    """One replay.

    Args:
        traffic: conversations of agents, or single requests of ``ALONE``: without anything in
            common, or after a system prompt that all share.
        per_s: conversations that begin, or requests, for the whole fleet.
        fleet: ``equal`` engines; ``small``: with ``SMALL_KV`` tokens of memory; ``slow``: the steps
            of one take ``SLOWER`` times as long; ``joins``, ``leaves``: see ``Changing``.
    """

    traffic: str
    per_s: float
    arm: str
    seed: int
    small: bool = False
    fleet: str = EQUAL


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it.

    Args:
        turns: requests that came in the time that counts.
        ttft_s: mean and percentiles 50 and 99; of those without a first token how long they wait.
        goodput_per_s: of these, those that met the SLA.
        computed_frac: share of the prompts' tokens that was computed.
    """

    turns: int
    ttft_s: tuple[float, float, float]
    goodput_per_s: float
    computed_frac: float


def times(small: bool) -> tuple[float, float]:
    """From when on requests count, and until when; seconds."""
    return (0.0, 20.0) if small else (COLD_S, END_S)


@cache
def requests_of(traffic: str, per_s: float, seed: int, small: bool) -> tuple[Request, ...]:
    """The draw, the same for every arm."""
    n = round(per_s * times(small)[1]) + 1
    if traffic == AGENTS:
        return draw_requests(load_workload("agents"), n, per_s, None, seed)
    drawn = draw_requests(load_workload(ALONE), n, per_s, None, seed)
    alone = [replace(r, conversation=k) for k, r in enumerate(drawn)]
    if traffic == INDEPENDENT:
        return tuple(alone)
    system = tuple(f"system-{k}" for k in range(SYSTEM_TOKENS // PREFIX_TOKENS))
    return tuple(
        replace(r, input_tokens=SYSTEM_TOKENS + r.input_tokens, prefix=system) for r in alone
    )


def measure(task: AgentsTask) -> Found:
    """The replay of a task."""
    profile = load_profile(PROFILE)
    if task.fleet == SMALL:
        profile = profile.with_kv_tokens(SMALL_KV)
    slow = Ground(replace(profile, cost=SlowCost(profile.cost)))
    router = ARMS[task.arm](task.seed)
    if task.fleet in (JOINS, LEAVES) and isinstance(router, Router | Sticky):
        router = Changing(router, task.fleet)
    engine = EngineOptions(
        max_num_seqs=profile.max_num_seqs,
        max_num_batched_tokens=profile.max_num_batched_tokens,
        enable_prefix_caching=True,
    )
    cold_s, end_s = times(task.small)
    trace = together(
        replay_fleet(
            requests_of(task.traffic, task.per_s, task.seed, task.small),
            parse_policy(POLICY, SLA, engine),
            Ground(profile),
            ENGINES,
            router,
            until_s=end_s + AFTER_S,
            unlike={0: slow} if task.fleet == SLOW else {},
        )
    )
    counted = [cold_s <= o.request.arrival_s < end_s for o in trace.outcomes]
    waits_s = [
        (trace.end_s if o.first_token_s is None else o.first_token_s) - o.request.arrival_s
        for o, counts in zip(trace.outcomes, counted, strict=True)
        if counts
    ]
    good = sum(met and counts for met, counts in zip(meets(trace, SLA), counted, strict=True))
    computed = sum(step.prefill_tokens for step in trace.steps)
    asked = sum(o.request.input_tokens for o in trace.outcomes)
    p50, p99 = np.percentile(waits_s, (50, 99)).tolist()
    return Found(
        len(waits_s), (float(np.mean(waits_s)), p50, p99), good / (end_s - cold_s), computed / asked
    )


def ratio(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Seed by seed."""
    return [a / b for a, b in zip(ours, others, strict=True)]
