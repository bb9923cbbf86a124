"""Capacity of a fleet inside its SLA, by the roles of its engines.

Capacity is that of ``brimful replay --find-capacity`` with a time to first token
(``simulator.replay.verdict``): in the second half of a run the 99th percentile of the gaps between
tokens is within D, and that of the time to first token, waiting ones included, within 2 s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.contests.race import highest
from controller.config import Sla
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.roles import Fleet as Engines
from controller.roles import Split, Transfer, splits
from replicas.profiles.profile import LinearCost
from replicas.profiles.profile_file import load_profile
from simulator.replay.capacity import SearchTraffic, search_traffic
from simulator.replay.fleet import Fleet
from simulator.replay.steering import Auto, Fixed
from simulator.replay.verdict import Target, fault_of
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.scenario import Scenario
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request

PROFILE = "paper-fig3"
KV_BYTES = 327_680.0  # per token: 80 layers, 8 KV heads of 128, K and V, 2 bytes (70B with GQA)
LATENCY_S = 0.005  # of a transfer: its request and its acknowledgement
TTFT_MS = 2000.0
# Least size of a run: ten requests are beyond the percentile of its second half.
RUN_S, LEAST_REQUESTS = 80.0, 2000
# At half the rate before that, while roles are found: a queue would last for long.
WARM_UP_S = 20.0
PRECISION = 0.04
NEAR = 0.95  # share of the fluid limit at which a search begins
MOST = 2.4  # times the fluid limit of an aggregated engine at which it ends
AGGREGATED, AUTO = "aggregated", "auto"


@dataclass(frozen=True, slots=True)
class PdCase:
    """One case: a fleet, its workload and its SLA.

    Args:
        link_gbit_s: of each engine's network card.
    """

    engines: int
    workload: str
    itl_ms: float
    link_gbit_s: float

    @property
    def transfer(self) -> Transfer:
        """The speed of KV transfers."""
        return Transfer(KV_BYTES, self.link_gbit_s * 1e9 / 8, LATENCY_S)

    @property
    def sla(self) -> Sla:
        """The SLA of the whole fleet."""
        return Sla(itl_ms=self.itl_ms, ttft_ms=TTFT_MS)


@dataclass(frozen=True, slots=True)
class Task:
    """The capacity of one arm on one seed.

    Args:
        arm: ``aggregated``; ``auto``; ``P:D``: this many prefill and decode engines.
    """

    case: PdCase
    arm: str
    seed: int
    small: bool = False


@cache
def traffic_of(case: PdCase, seed: int, small: bool) -> tuple[SearchTraffic, Scenario]:
    """Requests of a run of all engines; its fluid limit is one aggregated engine's."""
    scenario = Scenario(load_profile(PROFILE))
    run_s, target = 20.0 if small else RUN_S, Target(case.sla)

    def drawn(least: int) -> SearchTraffic:
        return search_traffic(
            load_workload(case.workload),
            scenario,
            target,
            seed=seed,
            least=least,
            least_run_s=run_s,
        )

    first = drawn(40 if small else LEAST_REQUESTS)
    n = max(math.ceil(case.engines * MOST * first.fluid_limit_per_s * first.run_s), first.least)
    return replace(drawn(n), least=first.least, fluid_limit_per_s=first.fluid_limit_per_s), scenario


def fluid_splits(case: PdCase, seed: int, *, direct: bool) -> tuple[Split, ...]:
    """The forecast of ``controller.roles`` from the true step times and lengths."""
    traffic, scenario = traffic_of(case, seed, False)
    cost = scenario.profile.cost
    assert isinstance(cost, LinearCost)
    model = StepModel(
        cost.fixed_s, cost.per_decode_s, cost.per_kv_s, cost.per_prefill_s, cost.per_context_s, 0.0
    )
    pairs = [(r.input_tokens, r.output_tokens) for r in traffic.requests]
    sums = zip(*((1, i, o, i * i, o * o, i * o) for i, o in pairs), strict=True)
    lengths = LengthMoments(*map(sum, sums))
    of = scenario.profile
    fleet = Engines(case.engines, of.max_num_seqs, of.max_num_batched_tokens, of.kv_tokens)
    return splits(model, lengths, fleet, case.transfer, case.sla, direct=direct)


def prefill_of(arm: str) -> int:
    """The prefill engines that an arm begins with."""
    return int(arm.split(":")[0]) if ":" in arm else 0


def steering_of(task: Task) -> Fixed:
    """The roles and routes of an arm."""
    case = task.case
    if task.arm == AUTO:
        return Auto(case.engines, case.transfer, case.sla, task.seed)
    return Fixed(case.engines, prefill_of(task.arm), case.transfer, case.sla, task.seed)


def warmed_up(requests: Sequence[Request]) -> tuple[Request, ...]:
    """These requests, the first ones at half the rate."""
    half_s = WARM_UP_S / 2
    return tuple(replace(r, arrival_s=r.arrival_s + min(r.arrival_s, half_s)) for r in requests)


def run_at(task: Task, rate_per_s: float) -> Trace:
    """The replay at a rate per engine."""
    case = task.case
    traffic, scenario = traffic_of(case, task.seed, task.small)
    requests = warmed_up(traffic.requests_at(case.engines * rate_per_s))
    plan = parse_policy("adaptive", case.sla, engine_of(scenario.profile))
    return Fleet(requests, plan, scenario, case.engines, case.transfer, steering_of(task)).run()


def measure(task: Task) -> float:
    """The capacity, requests/s of an engine; 0: no rate holds."""
    case = task.case
    limit = traffic_of(case, task.seed, task.small)[0].fluid_limit_per_s
    best = task.arm == AUTO
    found = fluid_splits(case, task.seed, direct=best)
    bound = max(found, key=lambda one: one.per_s) if best else found[prefill_of(task.arm)]

    def holds(rate_per_s: float) -> bool:
        return fault_of(run_at(task, rate_per_s), Target(case.sla)) is None

    near = max(NEAR * bound.per_s / case.engines, limit / 32)
    return highest(holds, near, limit / 64, MOST * limit, 0.1 if task.small else PRECISION)
