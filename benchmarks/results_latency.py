"""G3: capacity under a latency SLA, by ``benchmarks.capacity_search`` and ``benchmarks.race``."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.bootstrap import geometric_mean
from benchmarks.capacity_search import PRECISION, Target, make_course
from benchmarks.document import markdown_table
from benchmarks.engine import Ground
from benchmarks.race import race
from benchmarks.results_bench import Bench
from benchmarks.results_report import Row, Section, shown
from benchmarks.workloads import load_workload
from controller.config import Sla
from replicas.profile import StepProfile
from replicas.profile_file import load_profile

SLA_MS = 50.0  # of paper-fig3, whose step of one request takes 27 ms
SLA_STEPS = 1.85  # of the measured tables: the SLA in steps of one request


@dataclass(frozen=True, slots=True)
class Runner:
    """A policy with the settings it is raced over.

    Args:
        near: where its capacity probably is, share of the fluid limit: the search begins there.
        at_least: the target of ``adaptive`` over it.
    """

    name: str
    specs: tuple[str, ...]
    near: float
    at_least: float | None = None


def static(chunks: Sequence[int]) -> tuple[str, ...]:
    """vLLM with these chunks; its cap may not be above the chunk, and is 256 else."""
    return tuple(
        f"static:max_num_seqs={min(chunk, 256)},max_num_batched_tokens={chunk}" for chunk in chunks
    )


def algorithm_2(chunks: Sequence[int]) -> tuple[str, ...]:
    """The paper's Algorithms 1 and 2 in an engine with these chunks."""
    return tuple(spec.replace("static:", "paper:l0=buffer,") for spec in static(chunks))


ADAPTIVE = Runner("adaptive", ("adaptive",), 0.93)
ON_PAPER = (
    ADAPTIVE,
    Runner("default", ("static",), 0.12, 5.0),
    Runner("best_static", static((128, 160, 96, 192)), 0.8, 1.05),
    Runner("algorithm_2", algorithm_2((128, 160, 192)), 0.75, 1.1),
)
ON_TABLE = (ADAPTIVE, Runner("default", ("static",), 0.3), Runner("best_static", (), 0.8))


@dataclass(frozen=True, slots=True)
class Contest:
    """One workload on one profile.

    Args:
        sla_ms: D; None: ``SLA_STEPS`` times the step of one request.
        run_s: how long a run is at least, seconds of virtual time.
    """

    name: str
    profile: str
    workload: str
    runners: tuple[Runner, ...]
    sla_ms: float | None = None
    run_s: float = 240.0


def on_table(name: str, profile: str, workload: str, chunks: Sequence[int]) -> Contest:
    """A contest on a measured table, with fewer baselines and shorter runs."""
    runners = (*ON_TABLE[:2], Runner("best_static", static(chunks), 0.8, 1.0))
    return Contest(name, profile, workload, runners, run_s=120.0)


CONTESTS = (
    Contest("257-62", "paper-fig3", "exponential:257,62", ON_PAPER, SLA_MS),
    Contest("257-447", "paper-fig3", "exponential:257,447", ON_PAPER, SLA_MS),
    Contest("azure", "paper-fig3", "azure-2023-conversation", ON_PAPER, SLA_MS),
    on_table("h100-70b", "h100-Llama-2-70b-hf-tp4", "exponential:257,62", (512, 384, 640)),
    on_table("a100-7b", "a100-Llama-2-7b-hf-tp1", "azure-2023-conversation", (384, 512, 256)),
)


@dataclass(frozen=True, slots=True)
class Task:
    """One draw of requests for all runners of a contest."""

    contest: Contest
    seed: int
    small: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Of each runner its capacity, requests/s, and the setting that reached it."""

    fluid_per_s: float
    per_s: dict[str, float]
    spec: dict[str, str]


def sla_of(contest: Contest, profile: StepProfile) -> Sla:
    """The agreement: p99 of the time between tokens."""
    if contest.sla_ms is not None:
        return Sla(itl_ms=contest.sla_ms)
    return Sla(itl_ms=round(SLA_STEPS * profile.step_s(1, 500, 0, 0) * 1000, 1))


def search(task: Task) -> Found:
    """The capacity of every runner on this draw."""
    contest = task.contest
    profile = load_profile(contest.profile)
    ground, target = Ground(profile), Target(sla_of(contest, profile))
    workload = load_workload(contest.workload)
    length = {"least_run_s": 20.0, "least": 40} if task.small else {"least_run_s": contest.run_s}
    course = make_course(workload, ground, target, seed=task.seed, **length)  # type: ignore[arg-type]
    per_s, spec = {}, {}
    for runner in contest.runners:
        per_s[runner.name], spec[runner.name] = race(
            runner.specs, runner.near, course, ground, target
        )
    return Found(course.fluid_limit_per_s, per_s, spec)


def run(bench: Bench) -> Section:
    """Every contest with every seed."""
    contests = CONTESTS[:1] if bench.small else CONTESTS
    tasks = [Task(contest, seed, bench.small) for seed in bench.seeds for contest in contests]
    done = iter(bench.map(search, tasks, "G3 capacities"))
    by_seed = [[next(done) for _ in contests] for _ in bench.seeds]
    by_contest = [[found[k] for found in by_seed] for k in range(len(contests))]
    rows = [row for c, found in zip(contests, by_contest, strict=True) for row in _rows(c, found)]
    return Section(
        "G3",
        "capacity inside a latency SLA",
        f"The highest rate with p99 time between tokens within the SLA ({SLA_MS:g} ms on"
        f" `paper-fig3`; on measured tables {SLA_STEPS:g} times the step of one request) and a"
        " median scheduling delay within 2 s, found to"
        f" {PRECISION:.0%}; seeds {', '.join(map(str, bench.seeds))}. Figures are the capacity of"
        " `adaptive` over that of a baseline on the same draw, geometric means over seeds."
        " Baselines with a setting have the best one of each seed.",
        tuple(rows),
        (_table(contests, by_contest),),
    )


def _rows(contest: Contest, found: list[Found]) -> list[Row]:
    rows = []
    for runner in contest.runners[1:]:
        # A baseline that holds nowhere is given the lowest rate that was tried.
        ratios = [
            f.per_s["adaptive"] / max(f.per_s[runner.name], f.fluid_per_s / 64) for f in found
        ]
        what = f"over {runner.name.replace('_', ' ')}, {contest.name}"
        ratio = geometric_mean([ratios])
        rows.append(
            Row(f"g3_{runner.name}_{contest.name}", what, "ratio", ratio, at_least=runner.at_least)
        )
    shares = geometric_mean([[max(f.per_s["adaptive"] / f.fluid_per_s, 1e-9) for f in found]])
    what = f"share of the fluid limit, {contest.name}"
    target = 0.88 if contest.sla_ms is not None else None
    rows.append(Row(f"g3_fluid_{contest.name}", what, "ratio", shares, at_least=target))
    return rows


def _table(contests: Sequence[Contest], by_contest: list[list[Found]]) -> str:
    lines = []
    for contest, found in zip(contests, by_contest, strict=True):
        fluid = ", ".join(shown(f.fluid_per_s) for f in found)
        lines.append((contest.name, contest.profile, "fluid limit", fluid, ""))
        for runner in contest.runners:
            rates = ", ".join(shown(f.per_s[runner.name]) for f in found)
            specs = ", ".join(sorted({f"`{f.spec[runner.name]}`" for f in found}))
            lines.append((contest.name, contest.profile, runner.name, rates, specs))
    return markdown_table(
        ("workload", "profile", "policy", "requests/s, by seed", "setting"), lines
    )
