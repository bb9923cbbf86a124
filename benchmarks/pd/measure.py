"""What a fleet carries inside its SLA, by who computes prompts where.

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
from simulator.replay.capacity import Course, make_course
from simulator.replay.fleet import Fleet, FleetTrace
from simulator.replay.steering import Auto, Fixed, Steering
from simulator.replay.verdict import Target, fault_of
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request

PROFILE = "paper-fig3"
KV_BYTES = 327_680.0  # of a token: 80 layers, 8 heads of KV, 128 wide, 2 bytes (70B with GQA)
LATENCY_S = 0.005  # the request to read, and a notice that it was
TTFT_MS = 2000.0
# Of a run, at least: the percentile of the second half is known by ten requests beyond it.
RUN_S, LEAST_REQUESTS = 80.0, 2000
WARM_UP_S = (
    20.0  # at half the rate before that, in which roles are found; a queue would stay for long
)
PRECISION = 0.04
NEAR = 0.95  # of the fluid limit: where a search begins
MOST = 2.4  # times the fluid limit of an aggregated engine: where it ends
AGGREGATED, AUTO = "aggregated", "auto"


@dataclass(frozen=True, slots=True)
class PdRow:
    """One row of the table: what is asked of which fleet.

    Args:
        link_gbit_s: of each engine's network card.
    """

    engines: int
    workload: str
    itl_ms: float
    link_gbit_s: float

    @property
    def transfer(self) -> Transfer:
        """How KV gets from engine to engine."""
        return Transfer(KV_BYTES, self.link_gbit_s * 1e9 / 8, LATENCY_S)

    @property
    def sla(self) -> Sla:
        """The agreement of the whole fleet."""
        return Sla(itl_ms=self.itl_ms, ttft_ms=TTFT_MS)


@dataclass(frozen=True, slots=True)
class Task:
    """The capacity of one arm on one draw.

    Args:
        arm: ``aggregated``; ``auto``; ``P:D``: so many engines compute prompts and so many decode.
    """

    row: PdRow
    arm: str
    seed: int
    small: bool = False


@cache
def course_of(row: PdRow, seed: int, small: bool) -> tuple[Course, Ground]:
    """Requests of a run of all engines; its fluid limit is one aggregated engine's."""
    ground = Ground(load_profile(PROFILE))
    run_s, target = 20.0 if small else RUN_S, Target(row.sla)

    def drawn(least: int) -> Course:
        return make_course(
            load_workload(row.workload), ground, target, seed=seed, least=least, least_run_s=run_s
        )

    first = drawn(40 if small else LEAST_REQUESTS)
    n = max(math.ceil(row.engines * MOST * first.fluid_limit_per_s * first.run_s), first.least)
    return replace(drawn(n), least=first.least, fluid_limit_per_s=first.fluid_limit_per_s), ground


def fluid_splits(row: PdRow, seed: int, *, direct: bool) -> tuple[Split, ...]:
    """What ``controller.roles`` says of the true step times and lengths."""
    course, ground = course_of(row, seed, False)
    cost = ground.profile.cost
    assert isinstance(cost, LinearCost)
    model = StepModel(
        cost.fixed_s, cost.per_decode_s, cost.per_kv_s, cost.per_prefill_s, cost.per_context_s, 0.0
    )
    pairs = [(r.input_tokens, r.output_tokens) for r in course.traffic.requests]
    sums = zip(*((1, i, o, i * i, o * o, i * o) for i, o in pairs), strict=True)
    lengths = LengthMoments(*map(sum, sums))
    of = ground.profile
    fleet = Engines(row.engines, of.max_num_seqs, of.max_num_batched_tokens, of.kv_tokens)
    return splits(model, lengths, fleet, row.transfer, row.sla, direct=direct)


def prefill_of(arm: str) -> int:
    """The prefill engines that an arm begins with."""
    return int(arm.split(":")[0]) if ":" in arm else 0


def steering_of(task: Task) -> Steering:
    """Who leads the fleet of an arm."""
    row = task.row
    if task.arm == AUTO:
        return Auto(row.engines, row.transfer, row.sla, task.seed)
    return Fixed(row.engines, prefill_of(task.arm), row.transfer, row.sla, task.seed)


def warmed_up(requests: Sequence[Request]) -> tuple[Request, ...]:
    """The same requests, the first ones at half the rate."""
    half_s = WARM_UP_S / 2
    return tuple(replace(r, arrival_s=r.arrival_s + min(r.arrival_s, half_s)) for r in requests)


def run_at(task: Task, rate_per_s: float) -> FleetTrace:
    """The replay at a rate of each engine."""
    row = task.row
    course, ground = course_of(row, task.seed, task.small)
    requests = warmed_up(course.requests_at(row.engines * rate_per_s))
    plan = parse_policy("adaptive", row.sla, engine_of(ground.profile))
    return Fleet(requests, plan, ground, row.engines, row.transfer, steering_of(task)).run()


def measure(task: Task) -> float:
    """The capacity, requests/s of an engine; 0 where no rate holds."""
    row = task.row
    limit = course_of(row, task.seed, task.small)[0].fluid_limit_per_s
    best = task.arm == AUTO
    found = fluid_splits(row, task.seed, direct=best)
    bound = max(found, key=lambda one: one.per_s) if best else found[prefill_of(task.arm)]

    def holds(rate_per_s: float) -> bool:
        return fault_of(run_at(task, rate_per_s).trace, Target(row.sla)) is None

    near = max(NEAR * bound.per_s / row.engines, limit / 32)
    return highest(holds, near, limit / 64, MOST * limit, 0.1 if task.small else PRECISION)
