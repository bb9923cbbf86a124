"""G5: how well the step time is predicted, one step ahead, on measured tables: staircases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.contests.catalog import SLA_STEPS
from benchmarks.report.bootstrap import mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench
from benchmarks.results.g4_phases import phase
from benchmarks.results.settling import steps_until_near
from controller.config import Sla
from controller.models.step_time import StepFit, StepModel, fit
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample
from replicas.profile import StepCost
from replicas.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.lengths import Floats
from simulator.workloads.traffic import draw_phases

PROFILES = ("h100-Llama-2-70b-hf-tp4", "a100-Llama-2-7b-hf-tp1")
WORKLOAD, OTHER = "azure-2023-conversation", "exponential:257,447"
LOAD = 0.85  # of the fluid limit
SLOWER = 1.3  # times the step times, from half of the run on
PERIOD_S = 0.5  # between two exchanges
NEAR_STEPS = 50  # the error after a change is a mean over so many steps ...
LIMIT = 8.0  # of that mean, %
WITHIN_STEPS = 200  # ... that end this long after it


class SlowerFrom:
    """A cost that rises after so many steps, as on a card that was throttled."""

    def __init__(self, cost: StepCost, steps: int, factor: float) -> None:
        self._cost, self._left, self._factor = cost, steps, factor

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """Seconds; each call is one more step."""
        self._left -= 1
        return self._cost.step_s(decodes, kv, prefill, context) * (
            self._factor if self._left < 0 else 1.0
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One replay.

    Args:
        change: what happens in the middle of it: nothing, slower steps, or other traffic.
    """

    profile: str
    change: str
    seed: int
    half_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """Relative errors, %.

    Args:
        mape, p99: of the second half of the run.
        after: mean over the last ``NEAR_STEPS`` of ``WITHIN_STEPS`` steps after the change.
        steps: after the change until the mean over ``NEAR_STEPS`` stays at 8% or below.
    """

    mape: float
    p99: float
    after: float
    steps: int


def measure(task: Task) -> Found:
    """Replay ``adaptive``, then go through its steps as the replica's chunk sizer does."""
    profile = load_profile(task.profile)
    sla = Sla(itl_ms=round(SLA_STEPS * profile.step_s(1, 500, 0, 0) * 1000, 1))
    second = OTHER if task.change == "traffic" else WORKLOAD
    phases = [phase(name, profile, LOAD, task.half_s, sla) for name in (WORKLOAD, second)]
    requests = draw_phases(phases, None, task.seed)
    plan = parse_policy("adaptive", sla, engine_of(profile))
    trace = replay(requests, plan, Ground(profile))
    change = int(np.searchsorted(trace.column("end_s"), task.half_s))
    if task.change == "slower":
        slower = replace(profile, cost=SlowerFrom(profile.cost, change, SLOWER))
        trace = replay(requests, plan, Ground(slower))
    error = 100 * np.abs(predictions_s(trace, sla) / trace.column("duration_s") - 1)
    late = error[len(error) // 2 :]
    near = error[change:]
    until = near[WITHIN_STEPS - NEAR_STEPS : WITHIN_STEPS]
    return Found(
        float(late.mean()),
        float(np.percentile(late, 99)),
        float(until.mean()),
        steps_until_near(near, LIMIT, NEAR_STEPS, WITHIN_STEPS),
    )


def predictions_s(trace: Trace, sla: Sla) -> Floats:
    """What the online model predicted of each step before it ran, seconds.

    As in the Governor: it learns from every step, and receives the group's model of the exchange
    before the last.
    """
    sizer, group = ChunkSizer(sla.itl_s or 1.0, sla.percentile), StepFit()
    pooled: StepModel | None = None
    due_s, predicted = PERIOD_S, []
    for step in trace.steps:
        features = step.decodes, step.kv_tokens, step.prefill_tokens, step.prefill_context
        predicted.append(sizer.model.predict_s(*features))
        sizer.observe(StepSample(*features, step.duration_s))
        group.add(*features, step.duration_s)
        if step.end_s >= due_s:
            due_s = step.end_s + PERIOD_S
            sizer.receive(pooled)
            pooled = fit(group.stats())
    return np.array(predicted)


def run(bench: Bench) -> Section:
    """Each table with each change and every seed."""
    profiles = PROFILES[1:] if bench.small else PROFILES
    changes = ("none", "slower", "traffic")
    kinds = [(profile, change) for profile in profiles for change in changes]
    half_s = 8.0 if bench.small else 40.0
    tasks = [Task(p, c, seed, half_s) for seed in bench.seeds for p, c in kinds]
    done = iter(bench.map(measure, tasks, "G5 prediction"))
    by_seed = [[next(done) for _ in kinds] for _ in bench.seeds]
    found = {kind: [one[k] for one in by_seed] for k, kind in enumerate(kinds)}
    rows = []
    for profile, change in kinds:
        short, of = profile.split("-")[0], found[profile, change]
        if change == "none":
            mape, p99 = mean([f.mape for f in of]), mean([f.p99 for f in of])
            rows.append(Row(f"g5_mape_{short}", f"MAPE, {profile}", "%", mape, at_most=5))
            rows.append(Row(f"g5_p99_{short}", f"p99 error, {profile}", "%", p99, at_most=15))
        else:
            what = f"MAPE {WITHIN_STEPS} steps after {change}, {profile}"
            after = mean([f.after for f in of])
            rows.append(Row(f"g5_{change}_{short}", what, "%", after, at_most=LIMIT))
    return Section(
        "G5",
        "step times predicted one step ahead",
        f"`adaptive` on measured tables, SLA {SLA_STEPS:g} times the step of one request,"
        f" `{WORKLOAD}` at {LOAD:g} of the fluid limit, no noise: what is left is the staircase."
        f" Two times {half_s:g} s; MAPE and p99 of the relative error are of the second half, which"
        " no constant was chosen on. Changes in the middle: all step times times"
        f" {SLOWER:g}, or the traffic becomes `{OTHER}`; then the mean error of steps"
        f" {WITHIN_STEPS - NEAR_STEPS + 1} to {WITHIN_STEPS} after it.",
        tuple(rows),
        (_table(found),),
    )


def _table(found: Mapping[tuple[str, str], Sequence[Found]]) -> str:
    lines = [
        (
            profile,
            change,
            *(shown(mean([getattr(f, k) for f in of]).value) for k in ("mape", "p99", "after")),
            ", ".join(str(f.steps) for f in of),
        )
        for (profile, change), of in found.items()
    ]
    head = ("profile", "change", "MAPE, %", "p99, %", "MAPE after it, %", "steps to 8%, by seed")
    return markdown_table(head, lines)
