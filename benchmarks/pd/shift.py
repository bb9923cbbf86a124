"""Traffic whose mix changes while a fleet runs: which share of it is served inside the SLA.

Each mix is offered at ``LOAD`` of what the best number of prefill engines carries of it by the
closed form. A request is inside where its first token came within the TTFT and the percentile of
its own gaps is within D.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.pd.measure import (
    AGGREGATED,
    AUTO,
    DYNAMO,
    PROFILE,
    STOCK,
    PdRow,
    Task,
    fluid_splits,
    rule_of,
    steering_of,
)
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, exactly, shown
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.measure import TOLERANCE
from simulator.replay.role_fleet import RoleFleet
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_traffic

MIXES = ("exponential:257,62", "exponential:257,447", "lognormal:2048,28,1", "exponential:257,62")
MIX_S = 90.0  # three times the dwell between two changes of roles
LOAD = 0.9
FIXED = ("2:2", "1:3", AGGREGATED, "3:1")
OVER_FIXED = 1.15


@dataclass(frozen=True, slots=True)
class Shift:
    """One arm over all mixes.

    Args:
        arm: as in ``Task``.
    """

    engines: int
    itl_ms: float
    link_gbit_s: float
    arm: str
    seed: int
    small: bool = False

    def row(self, mix: str) -> PdRow:
        """The fleet, with one of the mixes."""
        return PdRow(self.engines, mix, self.itl_ms, self.link_gbit_s)


def measure_shift(task: Shift) -> tuple[float, ...]:
    """The share that is inside the SLA of each mix, and of all requests."""
    row, requests = task.row(MIXES[0]), asked(task)
    ground = Ground(load_profile(PROFILE))
    plan = parse_policy("adaptive", row.sla, engine_of(ground.profile))
    steering = steering_of(Task(row, task.arm, task.seed))
    fleet = RoleFleet(requests, plan, ground, task.engines, row.transfer, steering)
    inside = within(fleet.run(drain=True).trace, row.sla)
    mix_s = _mix_s(task)
    mix = np.array([int(one.arrival_s / mix_s) for one in requests])
    return *(float(inside[mix == k].mean()) for k in range(len(MIXES))), float(inside.mean())


def asked(task: Shift) -> tuple[Request, ...]:
    """The requests of all mixes, one after the other."""
    found: list[Request] = []
    for k, mix in enumerate(MIXES):
        best = max(fluid_splits(task.row(mix), task.seed, direct=True), key=lambda one: one.per_s)
        rate_per_s, mix_s = LOAD * best.per_s, _mix_s(task)
        drawn = draw_traffic(load_workload(mix), int(rate_per_s * mix_s * 1.2), None, task.seed + k)
        found += [
            replace(one, arrival_s=k * mix_s + one.arrival_s)
            for one in drawn.at(rate_per_s)
            if one.arrival_s < mix_s
        ]
    return tuple(found)


def _mix_s(task: Shift) -> float:
    return 10.0 if task.small else MIX_S


def within(trace: Trace, sla: Sla) -> np.ndarray:
    """Which requests are inside the SLA, shape (n,)."""
    assert sla.itl_s is not None and sla.ttft_ms is not None
    n, gaps = len(trace.outcomes), trace.gaps
    late = np.bincount(gaps.request[gaps.length_s > sla.itl_s * TOLERANCE], minlength=n)
    few = late <= np.bincount(gaps.request, minlength=n) * (1 - sla.percentile / 100)
    most_s = sla.ttft_ms / 1000 * TOLERANCE
    soon = [
        one.first_token_s is not None and one.first_token_s - one.request.arrival_s <= most_s
        for one in trace.outcomes
    ]
    inside: np.ndarray = few & np.array(soon)
    return inside


def arms_of_shift(rivals: Sequence[str]) -> list[str]:
    """Who is compared: ``auto``, every fixed number, and the rules that change it or do not."""
    return [AUTO, *FIXED, *(f"{name}:2:2" for name in rivals if name != STOCK)]


def rows_of_shift(found: Mapping[Shift, Sequence[float]]) -> list[Row]:
    """``auto`` over the best fixed number, and over Dynamo's planner, by the share inside."""
    inside = {task.arm: shares[-1] for task, shares in found.items()}
    made = []
    fixed = {arm: share for arm, share in inside.items() if arm in FIXED}
    if AUTO in inside and fixed:
        best = max(fixed, key=lambda arm: fixed[arm])
        what = f"mix that changes: share inside the SLA over the best fixed ratio ({best})"
        value = inside[AUTO] / max(fixed[best], 1e-3)
        made.append(Row("pd_shift_fixed", what, "ratio", exactly(value), at_least=OVER_FIXED))
    for arm, share in inside.items():
        if rule_of(arm) == DYNAMO and AUTO in inside:
            what, value = "mix that changes: over Dynamo's planner", inside[AUTO] / max(share, 1e-3)
            made.append(Row("pd_shift_dynamo", what, "ratio", exactly(value)))
    return made


def shift_table(found: Mapping[Shift, Sequence[float]]) -> str:
    """The share inside the SLA, by mix; empty without runs."""
    lines = [(task.arm, *map(shown, shares)) for task, shares in found.items()]
    head = ("share inside the SLA", *(mix.split(":", 1)[1] for mix in MIXES), "all")
    return markdown_table(head, lines) if lines else ""
