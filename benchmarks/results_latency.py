"""G3: capacity under a latency SLA, by ``benchmarks.capacity_search`` and ``benchmarks.race``."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.bootstrap import geometric_mean
from benchmarks.capacity_search import PRECISION, make_course
from benchmarks.document import markdown_table
from benchmarks.engine import Ground
from benchmarks.race import race
from benchmarks.results_bench import Bench
from benchmarks.results_contests import CONTESTS, SLA_MS, SLA_STEPS, TABLES, Contest, sla_of
from benchmarks.results_report import Row, Section, shown
from benchmarks.verdict import Target
from benchmarks.workloads import load_workload
from replicas.profile_file import load_profile


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


def search(task: Task) -> Found:
    """The capacity of every runner on this draw."""
    contest = task.contest
    profile = load_profile(contest.profile)
    ground, target = Ground(profile), Target(sla_of(contest, profile))
    workload = load_workload(contest.workload)
    length = (
        {"least_run_s": 20.0, "least": 40}
        if task.small
        else {"least_run_s": contest.run_s, "least": 200}
    )
    course = make_course(workload, ground, target, seed=task.seed, **length)  # type: ignore[arg-type]
    per_s, spec = {}, {}
    for runner in contest.runners:
        per_s[runner.name], spec[runner.name] = race(
            runner.specs, runner.near, course, ground, target
        )
    return Found(course.fluid_limit_per_s, per_s, spec)


def run(bench: Bench) -> Section:
    """The paper's line."""
    return _section(bench, "G3", CONTESTS)


def run_tables(bench: Bench) -> Section:
    """The measured tables."""
    return _section(bench, "G3-tables", TABLES)


def _section(bench: Bench, name: str, contests: tuple[Contest, ...]) -> Section:
    """Every contest with every seed."""
    contests = contests[:1] if bench.small else contests
    tasks = [Task(contest, seed, bench.small) for seed in bench.seeds for contest in contests]
    done = iter(bench.map(search, tasks, f"{name} capacities"))
    by_seed = [[next(done) for _ in contests] for _ in bench.seeds]
    by_contest = [[found[k] for found in by_seed] for k in range(len(contests))]
    rows = [row for c, found in zip(contests, by_contest, strict=True) for row in _rows(c, found)]
    on_line = contests[0].sla_ms is not None
    sla = f"{SLA_MS:g} ms" if on_line else f"{SLA_STEPS:g} times the step of one request"
    return Section(
        name,
        f"capacity inside a latency SLA, {'the line' if on_line else 'measured tables'}",
        f"The highest rate with p99 time between tokens within {sla} and a median scheduling delay"
        f" within 2 s, found to {PRECISION:.0%}; seeds {', '.join(map(str, bench.seeds))}. Figures"
        " are the capacity of `adaptive` over that of a baseline on the same draw, geometric means"
        " over seeds. Baselines with a setting have the best one of each seed. Runs of"
        f" {contests[0].run_s:g} s, 12 residences and 200 requests at least.",
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
