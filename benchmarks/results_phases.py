"""G4: traffic that shifts from one workload to another, close to the limit in each phase."""

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.bootstrap import geometric_mean, mean
from benchmarks.cases import engine_of
from benchmarks.document import PLOTS, markdown_table
from benchmarks.engine import Ground, replay
from benchmarks.fluid import fluid_limit_per_s
from benchmarks.plots import plot
from benchmarks.policies import parse_policy
from benchmarks.requests import length_stats
from benchmarks.results_bench import PILOT_SEED, Bench
from benchmarks.results_report import Row, Section, shown
from benchmarks.shares import share_inside
from benchmarks.traffic import Phase, draw_phases, draw_traffic
from benchmarks.workloads import load_workload
from controller.config import Sla
from replicas.profile import StepProfile
from replicas.profile_file import load_profile

PROFILE = "paper-fig3"
SLA = Sla(itl_ms=50, ttft_ms=5000)
LOAD = 0.95  # of the fluid limit of each phase
WORKLOADS = (
    "exponential:257,62",
    "exponential:257,447",
    "azure-2023-conversation",
    "exponential:257,62",
)
PHASE_S = 90.0
CHUNKS = (128, 160, 192, 256)  # of Algorithm 2; the best on the pilot's seed runs with every seed
ADAPTIVE, DEFAULT = "adaptive", "static"
PLOT = PLOTS / "phases.png"


def algorithm_2(chunk: int) -> str:
    """The paper's policy in an engine with this chunk, its late requests stepping aside."""
    return f"paper:step_aside=true,l0=buffer,max_num_seqs={chunk},max_num_batched_tokens={chunk}"


@dataclass(frozen=True, slots=True)
class Task:
    """One draw of the phases for some policies, one after the other.

    Args:
        plot: draw what the policies did.
    """

    seed: int
    specs: tuple[str, ...]
    phase_s: float = PHASE_S
    plot: bool = False


def phase(
    workload: str, profile: StepProfile, load: float, seconds: float, sla: Sla = SLA
) -> Phase:
    """A phase at a share of its own fluid limit."""
    drawn = load_workload(workload)
    stats = length_stats(draw_traffic(drawn, 5000, None, PILOT_SEED).requests)
    limit = fluid_limit_per_s(profile, stats, sla.itl_s)
    return Phase(drawn, load * limit, seconds)


def attain(task: Task) -> dict[str, float]:
    """The share inside, of each policy."""
    profile = load_profile(PROFILE)
    phases = [phase(name, profile, LOAD, task.phase_s) for name in WORKLOADS]
    requests = draw_phases(phases, None, task.seed)
    traces = {
        spec: replay(requests, parse_policy(spec, SLA, engine_of(profile)), Ground(profile))
        for spec in task.specs
    }
    if task.plot:
        plot(list(traces.items()), SLA.itl_ms, PLOT)
    return {spec: share_inside(trace, SLA) for spec, trace in traces.items()}


def run(bench: Bench) -> Section:
    """The pilot's choice of a chunk, then every seed."""
    phase_s = 10.0 if bench.small else PHASE_S
    chunks = tuple(map(algorithm_2, CHUNKS[:1] if bench.small else CHUNKS))
    pilots = bench.map(attain, [Task(PILOT_SEED, (s,), phase_s) for s in chunks], "G4 chunk")
    paper = max(zip(chunks, pilots, strict=True), key=lambda both: both[1][both[0]])[0]
    specs = ADAPTIVE, DEFAULT, paper
    tasks = [
        Task(seed, specs, phase_s, plot=seed == bench.seeds[0] and not bench.small)
        for seed in bench.seeds
    ]
    found = bench.map(attain, tasks, "G4 phases")
    rows = []
    for id_, spec, target in (("default", DEFAULT, 1.4), ("algorithm_2", paper, 1.1)):
        ratio = geometric_mean([[max(f[ADAPTIVE], 1e-3) / max(f[spec], 1e-3) for f in found]])
        what = f"share inside, over {id_.replace('_', ' ')}"
        rows.append(Row(f"g4_{id_}", what, "ratio", ratio, at_least=target))
    rows.append(Row("g4_inside", "share inside", "", mean([f[ADAPTIVE] for f in found])))
    lines = [
        (f"`{spec}`", shown(mean([f[spec] for f in found]).value), _list(f[spec] for f in found))
        for spec in specs
    ]
    return Section(
        "G4",
        "shifting traffic near the limit",
        f"Profile `{PROFILE}`; {', then '.join(f'`{w}`' for w in WORKLOADS)}, {phase_s:g} s each at"
        f" {LOAD:g} of its fluid limit at {SLA.itl_ms:g} ms. A request is inside if its mean time"
        f" between tokens is within {SLA.itl_ms:g} ms and its first token within"
        f" {(SLA.ttft_ms or 0) / 1000:g} s. Algorithm 2 has the chunk of"
        f" {', '.join(map(str, CHUNKS))} that was best on seed {PILOT_SEED}, and late requests step"
        " aside in it too.",
        tuple(rows),
        (markdown_table(("policy", "share inside", "by seed"), lines),),
        None if bench.small else PLOT,
    )


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
