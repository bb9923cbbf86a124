"""G6: the traffic becomes four times as much from one moment to the next."""

from dataclasses import dataclass

from benchmarks.bootstrap import mean
from benchmarks.cases import engine_of
from benchmarks.document import PLOTS, markdown_table
from benchmarks.engine import Ground, replay
from benchmarks.measure import TOLERANCE
from benchmarks.plots import plot
from benchmarks.policies import parse_policy
from benchmarks.results_bench import Bench
from benchmarks.results_phases import PROFILE, phase
from benchmarks.results_report import Row, Section, exactly, shown
from benchmarks.settling import ALLOWED, WINDOW, steps_until_in_time
from benchmarks.traffic import draw_phases
from controller.config import Sla
from replicas.profile_file import load_profile

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
PLOT = PLOTS / "step-change.png"
TARGET_S, TARGET_STEPS = 2.0, 40


@dataclass(frozen=True, slots=True)
class Task:
    """One draw for every policy."""

    seed: int
    phase_s: float
    plot: bool


def react(task: Task) -> dict[str, tuple[float, int]]:
    """Seconds and steps from the change until the steps are inside the SLA for good."""
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
        found[spec] = float(after_s), steps
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
        Row("g6_s", "back inside the SLA", "s", mean([s for s, _ in own]), at_most=TARGET_S),
        Row("g6_steps", "the same in steps", "", mean([n for _, n in own]), at_most=TARGET_STEPS),
        Row("g6_worst_s", "the slowest seed", "s", exactly(max(s for s, _ in own))),
    )
    lines = [
        (
            f"`{spec}`",
            ", ".join(shown(f[spec][0]) for f in found),
            ", ".join(str(f[spec][1]) for f in found),
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
        (markdown_table(("policy", "s, by seed", "steps, by seed"), lines),),
        None if bench.small else PLOT,
    )
