"""G6: the traffic becomes four times as much from one moment to the next."""

from dataclasses import dataclass

from benchmarks.report.bootstrap import mean
from benchmarks.report.document import PAGES, markdown_table
from benchmarks.report.rows import Row, Section, exactly, shown
from benchmarks.report.workers import Bench
from benchmarks.results.g4_phases import PROFILE, phase
from benchmarks.results.settling import ALLOWED, WINDOW, steps_until_in_time
from controller.config import Sla
from replicas.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.lateness import TOLERANCE
from simulator.replay.plots import plot
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.traffic import draw_phases

SLA = Sla(itl_ms=50)
WORKLOAD = "exponential:257,447"
LOAD, TIMES = 0.95, 4.0  # of the fluid limit after the change, and how many times that before
PHASE_S = 60.0
POLICIES = (
    "adaptive",
    "static",
    "static:max_num_seqs=160,max_num_batched_tokens=160",
    "paper:l0=buffer,max_num_seqs=160,max_num_batched_tokens=160",
)
PLOT = PAGES / "step-change.png"
TARGET_S, TARGET_STEPS = 2.0, 40
FIRST_S = 10.0
HEAD = "policy", "s, by seed", "steps, by seed", "late in the first 10 s, %, by seed"


@dataclass(frozen=True, slots=True)
class Task:
    """One draw for every policy."""

    seed: int
    phase_s: float
    plot: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Of one policy.

    Args:
        after_s, steps: from the change until the steps are inside the SLA for good.
        late: share of the times between tokens above the SLA, in the first ``FIRST_S`` after it, %.
    """

    after_s: float
    steps: int
    late: float


def react(task: Task) -> dict[str, Found]:
    """What each policy made of the change."""
    profile = load_profile(PROFILE)
    phases = [phase(WORKLOAD, profile, load, task.phase_s, SLA) for load in (LOAD / TIMES, LOAD)]
    requests = draw_phases(phases, None, task.seed)
    traces = {
        spec: replay(requests, parse_policy(spec, SLA, engine_of(profile)), Ground(profile))
        for spec in POLICIES
    }
    if task.plot:
        plot(list(traces.items()), SLA.itl_ms, PLOT)
    found = {}
    for spec, trace in traces.items():
        end_s = trace.column("end_s")
        # What runs on after the last arrival is neither phase.
        during = (end_s > task.phase_s) & (end_s <= 2 * task.phase_s)
        late = trace.column("duration_s") > 0.05 * TOLERANCE
        late &= trace.column("decodes") > 0
        steps = steps_until_in_time(late[during].astype(float))
        after_s = end_s[during][steps - 1] - task.phase_s if steps else 0.0
        first = (end_s > task.phase_s) & (end_s <= task.phase_s + FIRST_S)
        decodes = trace.column("decodes")[first]
        share = 100 * float(late[first] @ decodes) / max(decodes.sum(), 1)
        found[spec] = Found(float(after_s), steps, share)
    return found


def run(bench: Bench) -> Section:
    """Every seed."""
    phase_s = 10.0 if bench.small else PHASE_S
    tasks = [
        Task(seed, phase_s, plot=seed == bench.seeds[0] and not bench.small) for seed in bench.seeds
    ]
    found = bench.map(react, tasks, "G6 step change")
    own = [f["adaptive"] for f in found]
    rows = (
        Row("g6_s", "back inside the SLA", "s", mean([f.after_s for f in own]), at_most=TARGET_S),
        Row(
            "g6_steps",
            "the same in steps",
            "",
            mean([f.steps for f in own]),
            at_most=TARGET_STEPS,
        ),
        Row("g6_worst_s", "the slowest seed", "s", exactly(max(f.after_s for f in own))),
        Row("g6_late", "late tokens in the first 10 s after", "%", mean([f.late for f in own])),
    )
    lines = [
        (
            f"`{spec}`",
            ", ".join(shown(f[spec].after_s) for f in found),
            ", ".join(str(f[spec].steps) for f in found),
            ", ".join(shown(f[spec].late) for f in found),
        )
        for spec in POLICIES
    ]
    return Section(
        "G6",
        "four times the traffic within a step",
        f"Profile `{PROFILE}`, SLA {SLA.itl_ms:g} ms, `{WORKLOAD}`: {phase_s:g} s at"
        f" {LOAD / TIMES:.3g} of the fluid limit, then {phase_s:g} s at {LOAD:g}. Counted from the"
        f" change to the last late step of the last window of {WINDOW} steps with more than"
        f" {ALLOWED} late ones (5%); 0 where there is none.",
        rows,
        (markdown_table(HEAD, lines),),
        None if bench.small else PLOT,
    )
