"""G4: traffic that shifts from one workload to another, close to the limit in each phase."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.contests.tuning import Setting
from benchmarks.report.bootstrap import Estimate, geometric_mean, mean
from benchmarks.report.document import PAGES, markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench
from benchmarks.results.shares import share_inside
from controller.config import Sla
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import summarise
from simulator.replay.plots import plot
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import length_stats
from simulator.workloads.traffic import Phase, draw_phases, draw_traffic

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
# Of the static engines: every cap with every chunk on the pilot's seed, then the best one's
# neighbours; each of the phases alone is best served by something in between.
CAPS, CHUNKS = (40, 60, 80, 118), (118, 130, 142, 156)
BESIDE = 0.06
ADAPTIVE, IN_TURN, DEFAULT = "adaptive", "adaptive:step_aside=false", "static"
ASIDE, PLAIN = "static:step_aside=true", "static"  # of the sweep
ALGORITHM_2 = "paper:step_aside=true,l0=buffer"
LEAST = 1e-3  # of a ratio's figures
PLOT = PAGES / "phases.png"


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


@dataclass(frozen=True, slots=True)
class Served:
    """Requests/s that met the SLA (``simulator.replay.measure.meets``), and the share inside."""

    goodput_per_s: float
    inside: float


Found = dict[str, Served]  # by spec


def attain(task: Task) -> Found:
    """What each policy made of the phases."""
    profile = load_profile(PROFILE)
    phases = [phase(name, profile, LOAD, task.phase_s) for name in WORKLOADS]
    requests = draw_phases(phases, None, task.seed)
    traces = {
        spec: replay(requests, parse_policy(spec, SLA, engine_of(profile)), Ground(profile))
        for spec in task.specs
    }
    if task.plot:
        plot(list(traces.items()), SLA.itl_ms, PLOT)
    return {
        spec: Served(summarise(spec, trace, SLA).goodput_per_s or 0.0, share_inside(trace, SLA))
        for spec, trace in traces.items()
    }


def sweep(bench: Bench, policy: str, phase_s: float) -> tuple[Setting, ...]:
    """The static settings with the best goodput and with the best share inside on the pilot."""
    known: dict[Setting, Served] = {}

    def best_of(settings: Sequence[Setting]) -> tuple[Setting, ...]:
        new = [setting for setting in dict.fromkeys(settings) if setting not in known]
        tasks = [Task(PILOT_SEED, (setting.of(policy),), phase_s) for setting in new]
        for setting, found in zip(new, bench.map(attain, tasks, f"G4 {policy}"), strict=True):
            known[setting] = found[setting.of(policy)]
        by_goodput = max(known, key=lambda s: known[s].goodput_per_s)
        return tuple(dict.fromkeys((by_goodput, max(known, key=lambda s: known[s].inside))))

    if bench.small:
        return best_of([Setting(60, 140)])
    best = best_of([Setting(min(cap, chunk), chunk) for cap in CAPS for chunk in CHUNKS])
    up, down = 1 + BESIDE, 1 / (1 + BESIDE)
    around = (up, 1.0), (down, 1.0), (1.0, up), (1.0, down)
    return best_of([setting.scaled(*factors) for setting in best for factors in around])


def run(bench: Bench) -> Section:
    """The pilot's sweeps, then every seed."""
    phase_s = 10.0 if bench.small else PHASE_S
    aside, plain = (sweep(bench, policy, phase_s) for policy in (ASIDE, PLAIN))
    groups = {
        "adaptive": (ADAPTIVE,),
        "adaptive_in_turn": (IN_TURN,),
        "static_aside": tuple(setting.of(ASIDE) for setting in aside),
        "best_static": tuple(setting.of(PLAIN) for setting in plain),
        "default": (DEFAULT,),
        "algorithm_2": tuple(setting.of(ALGORITHM_2) for setting in aside),
    }
    specs = tuple(spec for group in groups.values() for spec in group)
    tasks = [
        Task(seed, specs, phase_s, plot=seed == bench.seeds[0] and not bench.small)
        for seed in bench.seeds
    ]
    found = bench.map(attain, tasks, "G4 phases")
    lines = [
        (
            f"`{spec}`",
            shown(mean([f[spec].goodput_per_s for f in found]).value),
            shown(mean([f[spec].inside for f in found]).value),
            ", ".join(f"{f[spec].inside:.3f}" for f in found),
        )
        for spec in specs
    ]
    return Section(
        "G4",
        "shifting traffic near the limit",
        _text(bench, phase_s),
        tuple(_rows(groups, found)),
        (markdown_table(("policy", "goodput/s", "share inside", "by seed"), lines),),
        None if bench.small else PLOT,
    )


def _text(bench: Bench, phase_s: float) -> str:
    return (
        f"Profile `{PROFILE}`; {', then '.join(f'`{w}`' for w in WORKLOADS)}, {phase_s:g} s each at"
        f" {LOAD:g} of its fluid limit at {SLA.itl_ms:g} ms; seeds"
        f" {', '.join(map(str, bench.seeds))}. Goodput: requests/s served with 99% of the times"
        f" between their tokens within {SLA.itl_ms:g} ms and the first token within"
        f" {(SLA.ttft_ms or 0) / 1000:g} s. A request is inside if the mean of the times between"
        " its tokens is, and its first token. Static engines: of every max_num_seqs of"
        f" {', '.join(map(str, CAPS))} with every max_num_batched_tokens of"
        f" {', '.join(map(str, CHUNKS))}, and the neighbours {BESIDE:.0%} beside the best, those"
        f" with the best goodput and with the best share inside on seed {PILOT_SEED}; on each seed"
        " the better of them counts. Once with late requests stepping aside"
        " (`step_aside: true`, which `adaptive` does by itself and vLLM does not have), once in"
        " vLLM's own order; Algorithm 2 has the settings of the first and its late requests step"
        " aside too. Much of the gain over an engine in vLLM's order is stepping aside, which any"
        " policy here can be given: the rows of what stepping aside alone gives, to the static"
        " engine and to `adaptive`, say how much."
    )


def _rows(groups: dict[str, tuple[str, ...]], found: Sequence[Found]) -> Iterator[Row]:
    def best(name: str, figure: Callable[[Served], float]) -> list[float]:
        return [max(figure(f[spec]) for spec in groups[name]) for f in found]

    figures: tuple[tuple[str, str, Callable[[Served], float]], ...] = (
        ("goodput", "goodput", lambda served: served.goodput_per_s),
        ("inside", "share inside", lambda served: served.inside),
    )
    targets = {
        ("goodput", "static_aside"): 1.10,
        ("inside", "static_aside"): 1.05,
        ("inside", "default"): 1.4,
        ("inside", "algorithm_2"): 1.1,
    }
    for id_, what, figure in figures:

        def over(one: str, other: str, figure: Callable[[Served], float] = figure) -> Estimate:
            pairs = zip(best(one, figure), best(other, figure), strict=True)
            return geometric_mean([[max(a, LEAST) / max(b, LEAST) for a, b in pairs]])

        for name, words in (
            ("static_aside", "the best static that steps aside"),
            ("best_static", "the best static in vLLM's order"),
            ("default", "vLLM's default"),
            ("algorithm_2", "Algorithm 2 that steps aside"),
        ):
            target = targets.get((id_, name))
            text = f"{what}, over {words}"
            yield Row(f"g4_{id_}_{name}", text, "ratio", over("adaptive", name), at_least=target)
        for id_of, one, other, words in (
            ("static", "static_aside", "best_static", "the best static"),
            ("adaptive", "adaptive", "adaptive_in_turn", "`adaptive`"),
        ):
            text = f"{what}, what stepping aside gives to {words}"
            yield Row(f"g4_{id_}_aside_{id_of}", text, "ratio", over(one, other))
        text = f"{what}, `adaptive` over the best static, both in vLLM's order"
        in_turn = over("adaptive_in_turn", "best_static")
        yield Row(f"g4_{id_}_in_turn", text, "ratio", in_turn)
        yield Row(f"g4_{id_}", what, "", mean(best("adaptive", figure)))
