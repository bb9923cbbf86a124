"""Days of autoscaling: replica-hours with roles by the controller, over aggregated engines.

Both sides scale by ``brimful`` with its defaults in the fluid fleet of ``brimful fleet``, so whole
days are run and nothing is shortened. A request is inside the SLA as a fleet counts it
(``simulator.fleet.outcome``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

import serve_app.autoscaling  # noqa: F401  what is kept stands on the policy's code, too
from benchmarks.pd.measure import KV_BYTES, LATENCY_S, PROFILE, TTFT_MS
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, exactly, shown
from controller.config import Sla
from controller.roles import Transfer
from replicas.profiles.profile_file import load_profile
from simulator.fleet.command import quiet
from simulator.fleet.course import BOUNDS, FIRST_SHARE
from simulator.fleet.days import PEAK_REPLICAS, Day, find_days
from simulator.fleet.outcome import SHARE
from simulator.fleet.plan import capacity_per_s
from simulator.fleet.policies import OURS, parse_policy
from simulator.fleet.simulate import Ground, simulate
from simulator.fleet.traffic import Rates, Requests, draw
from simulator.workloads.catalog import load_workload

DAYS = ("day-1", "day-3", "day-7", "day-10", "day-13")
MIX = "mix"
# Half of the peak's work in both halves, so that what changes is the mix and not the load.
MIX_OF = ("exponential:257,62", "exponential:257,447")
MIX_REPLICAS, MIX_HOURS, STEP_S = PEAK_REPLICAS / 2, 4, 600.0
STARTUP_S, TICK_S = 100.0, 10.0
HOURS_OVER = 0.9
SMALL_STEPS = 2


@dataclass(frozen=True, slots=True)
class DayTask:
    """One side of one day.

    Args:
        day: a name of ``DAYS``, or ``mix``.
        link_gbit_s: of each engine's network card; None: aggregated engines.
    """

    day: str
    itl_ms: float
    link_gbit_s: float | None
    seed: int
    small: bool = False


def tasks_of(
    days: Sequence[str], itl_ms: float, links_gbit_s: Sequence[float], seed: int, *, small: bool
) -> list[DayTask]:
    """Aggregated engines and each link, day by day."""
    links = (None, *links_gbit_s)
    return [DayTask(day, itl_ms, link, seed, small) for day in days for link in links]


def measure_day(task: DayTask) -> tuple[float, float]:
    """The share of requests inside the SLA, and replica-hours."""
    quiet()
    transfer = None
    if task.link_gbit_s is not None:
        transfer = Transfer(KV_BYTES, task.link_gbit_s * 1e9 / 8, LATENCY_S)
    sla = Sla(itl_ms=task.itl_ms, ttft_ms=TTFT_MS)
    profile = load_profile(PROFILE)
    ground = Ground(profile, sla, STARTUP_S, TICK_S, seed=task.seed, transfer=transfer)
    requests, seconds, first = _asked(task, ground)
    policy = parse_policy(OURS, ground, BOUNDS)
    least, most = BOUNDS["min_replicas"], BOUNDS["max_replicas"]
    outcome = simulate(
        requests,
        policy.autoscaling,
        ground,
        seconds=seconds,
        replicas=min(max(round(first / FIRST_SHARE), least), most),
        reads=policy.reads,
    )
    return outcome.attainment, outcome.replica_hours


def _asked(task: DayTask, ground: Ground) -> tuple[Requests, float, float]:
    """Requests, seconds, and how many aggregated replicas the first step keeps busy."""
    if task.day != MIX:
        (day,) = find_days([task.day], "", PEAK_REPLICAS)
        return _drawn(day, ground, task)
    steps = (MIX_REPLICAS,) * int(MIX_HOURS / 2 * 3600 / STEP_S)
    rates = Rates(STEP_S, steps, (1.0,) * len(steps))
    parts = [_drawn(Day(MIX, rates, workload), ground, task) for workload in MIX_OF]
    (before, seconds, first), (after, _, _) = parts
    joined = Requests(
        np.concatenate([before.arrival_s, after.arrival_s + seconds]),
        np.concatenate([before.input, after.input]),
        np.concatenate([before.output, after.output]),
    )
    return joined, 2 * seconds, first


def _drawn(day: Day, ground: Ground, task: DayTask) -> tuple[Requests, float, float]:
    workload = load_workload(day.workload)
    capacity = capacity_per_s(workload, ground)
    rates = day.rates.times(capacity)
    if task.small:
        few = slice(SMALL_STEPS)
        rates = replace(rates, rate_per_s=rates.rate_per_s[few], gap_cv=rates.gap_cv[few])
    first = rates.rate_per_s[0] / capacity
    return draw(rates, workload, ground.seed), rates.seconds, first


def rows_of_days(found: Mapping[DayTask, tuple[float, float]]) -> list[Row]:
    """Hours over those of aggregated engines, and the share that was inside."""
    made = []
    for task, (inside, hours) in found.items():
        base = found.get(replace(task, link_gbit_s=None))
        if task.link_gbit_s is None or base is None:
            continue
        word = f"{task.day}_{task.link_gbit_s:g}Gbit"
        name = f"{task.day}, {task.link_gbit_s:g} Gbit/s"
        what = f"{name}: replica-hours over aggregated"
        made.append(
            Row(f"pd_hours_{word}", what, "ratio", exactly(hours / base[1]), at_most=HOURS_OVER)
        )
        what = f"{name}: share inside the SLA (aggregated {base[0]:.4f})"
        made.append(Row(f"pd_inside_{word}", what, "share", exactly(inside), at_least=SHARE))
    return made


def day_table(found: Mapping[DayTask, tuple[float, float]]) -> str:
    """Both figures of each run; empty without runs."""
    lines = [
        (task.day, _side(task), f"{inside:.4f}", shown(hours))
        for task, (inside, hours) in found.items()
    ]
    head = ("day", "engines", "inside the SLA", "replica-hours")
    return markdown_table(head, lines) if lines else ""


def _side(task: DayTask) -> str:
    return "aggregated" if task.link_gbit_s is None else f"auto, {task.link_gbit_s:g} Gbit/s"
