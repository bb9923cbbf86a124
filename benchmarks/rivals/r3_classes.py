"""R3: three classes in one engine, against an engine for each class and against QoServe.

A fleet of three engines, or of any multiple: with classes in one engine each of them gets a third
of all requests, of all classes; separated, each gets the requests of one class. Engines of a fleet
do not help each other here, so one of them is replayed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.contests.classes import (
    CLASSES,
    GROUNDS,
    ONE_SLA,
    OURS,
    QOSERVE,
    TOP,
    Found,
    Task,
    course_of,
    is_ours,
    measure,
)
from benchmarks.report.bootstrap import geometric_mean, mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench
from benchmarks.rivals.settings import Setting, Settings

LOADS = (0.7, 0.85, 1.0, 1.15, 1.3)  # of the fluid limit at the strictest time between tokens
OVER_FLEETS, OVER_QOSERVE, TOP_ATTAINS = 1.2, 1.05, 0.99
_GAPS = "qoserve:slack=gaps,least_tokens=32,token_step=16,low_memory_tokens=0"
# Budgets to two tokens: by gaps what a coarser grid leaves of a step is lost.
_FINE = _GAPS.replace("token_step=16", "token_step=2")
SETTINGS = (
    QOSERVE,
    f"{_GAPS},margin=1,ms_per_token=0",
    f"{_GAPS},margin=1,ms_per_token=8",
    f"{_GAPS},margin=1.03,ms_per_token=1",
    f"{_FINE},margin=1,ms_per_token=0",
    f"{_FINE},margin=1.03,ms_per_token=1",
)


def run(bench: Bench, names: Sequence[str], settings: Settings) -> Section:
    """Tune QoServe on the pilot's draw, then search and sweep on every seed.

    Args:
        names: of the grounds; none: all of them.
        settings: of earlier searches, where nothing is to be searched.
    """
    grounds = [g for g in GROUNDS if not names or g in names]
    grounds = grounds[:1] if bench.small and not names else grounds
    tuned = tuned_on(bench, grounds, settings)
    for g, spec in tuned.items():
        settings.keep("R3", g, QOSERVE, Setting(spec=spec))
    specs = {g: dict.fromkeys((OURS, ONE_SLA, QOSERVE, tuned[g])) for g in grounds}
    tasks = [
        Task(g, seed, bench.small, spec)
        for g in grounds
        for spec in specs[g]
        for seed in bench.seeds
    ]
    tasks += [
        Task(g, seed, bench.small, OURS, only=name)
        for g in grounds
        for name in CLASSES.by_name
        for seed in bench.seeds
    ]
    loads = LOADS[-1:] if bench.small else LOADS
    tasks += [
        Task(g, seed, bench.small, spec, load=load)
        for g in grounds
        for spec in (OURS, tuned[g])
        for load in loads
        for seed in bench.seeds
    ]
    found = dict(zip(tasks, bench.map(measure, tasks, "R3", is_ours), strict=True))
    result = Result(grounds, bench, tuned, loads, found)
    return Section(
        "R3",
        "three classes in one engine",
        _text(bench),
        tuple(rows_of(result)),
        (_capacities(result), _attained(result)),
    )


def tuned_on(bench: Bench, grounds: Sequence[str], settings: Settings) -> dict[str, str]:
    """QoServe's best setting on the pilot's draw of each ground."""
    if not settings.searches:
        return {g: settings.of("R3", g, QOSERVE).spec for g in grounds}
    specs = SETTINGS[:2] if bench.small else SETTINGS
    pilots = [Task(g, PILOT_SEED, bench.small, spec) for g in grounds for spec in specs]
    of = dict(zip(pilots, bench.map(measure, pilots, "R3 qoserve", is_ours), strict=True))
    return {
        g: max(specs, key=lambda s: of[Task(g, PILOT_SEED, bench.small, s)].per_s) for g in grounds
    }


@dataclass(frozen=True, slots=True)
class Result:
    """What all tasks found."""

    grounds: list[str]
    bench: Bench
    tuned: dict[str, str]
    loads: Sequence[float]
    found: dict[Task, Found]

    def per_s(self, ground: str, spec: str, only: str | None = None) -> list[float]:
        """Capacities by seed."""
        small = self.bench.small
        return [
            self.found[Task(ground, seed, small, spec, only)].per_s for seed in self.bench.seeds
        ]

    def separate(self, ground: str) -> list[float]:
        """Requests/s of a fleet of three engines, one for each class, over three; by seed."""
        own = [self.per_s(ground, OURS, name) for name in CLASSES.by_name]
        return [min(of_seed) for of_seed in zip(*own, strict=True)]

    def divided(self, ground: str) -> list[float]:
        """The same of a large fleet, whose engines are divided so that all classes hold as much."""
        own = [self.per_s(ground, OURS, name) for name in CLASSES.by_name]
        return [3 / sum(1 / q for q in of_seed) for of_seed in zip(*own, strict=True)]

    def at(self, ground: str, spec: str, load: float) -> list[Found]:
        """What each seed had at a load."""
        small = self.bench.small
        return [
            self.found[Task(ground, seed, small, spec, None, load)] for seed in self.bench.seeds
        ]


def rows_of(result: Result) -> list[Row]:
    """The figures with their targets."""
    ours = {g: result.per_s(g, OURS) for g in result.grounds}

    def row(name: str, what: str, others: Callable[[str], list[float]], least: float | None) -> Row:
        ratios = [[a / b for a, b in zip(ours[g], others(g), strict=True)] for g in result.grounds]
        return Row(f"r3_{name}", what, "ratio", geometric_mean(ratios), at_least=least)

    rows = [
        row("fleets", "over three engines, one for each class", result.separate, OVER_FLEETS),
        row("divided", "over a large fleet divided between classes", result.divided, None),
        row("one_sla", "over one SLA for all", lambda g: result.per_s(g, ONE_SLA), None),
        row(
            "qoserve_tuned",
            "over QoServe, tuned for the workload",
            lambda g: result.per_s(g, result.tuned[g]),
            OVER_QOSERVE,
        ),
        row("qoserve", "over QoServe as published", lambda g: result.per_s(g, QOSERVE), None),
    ]
    top = result.loads[-1]
    seeds = range(len(result.bench.seeds))
    least = [min(result.at(g, OURS, top)[k].of[TOP].frac for g in result.grounds) for k in seeds]
    what = f"{TOP} in time at {top:g} of the fluid limit, the least of all"
    rows.append(Row("r3_top", what, "", mean(least), at_least=TOP_ATTAINS))
    return rows


def _capacities(result: Result) -> str:
    lines = []
    for g in result.grounds:
        limits = [
            course_of(g, seed, result.bench.small)[0].fluid_limit_per_s
            for seed in result.bench.seeds
        ]
        lines.append((g, "fluid limit at 50 ms", _rates(limits)))
        specs = dict.fromkeys((OURS, ONE_SLA, QOSERVE, result.tuned[g]))
        lines += [(g, f"`{spec}`", _rates(result.per_s(g, spec))) for spec in specs]
        lines += [
            (g, f"an engine for {name} alone", _rates(result.per_s(g, OURS, name)))
            for name in CLASSES.by_name
        ]
    return markdown_table(("workload", "policy", "requests/s of an engine, by seed"), lines)


def _rates(per_s: Sequence[float]) -> str:
    return ", ".join(map(shown, per_s))


def _attained(result: Result) -> str:
    lines = []
    for g in result.grounds:
        for load in result.loads:
            for spec in (OURS, result.tuned[g]):
                found = result.at(g, spec, load)
                cells = []
                for name in CLASSES.by_name:
                    of = [f.of[name] for f in found]
                    whole = min(a.requests_frac for a in of)
                    cells.append(f"{min(a.frac for a in of):.3f} ({whole:.3f})")
                steady = "yes" if all(f.steady for f in found) else "no"
                lines.append((g, f"{load:g}", f"`{spec}`", *cells, steady))
    head = ("workload", "load", "policy", *CLASSES.by_name, "keeps up")
    return markdown_table(head, lines)


def _text(bench: Bench) -> str:
    classes = "; ".join(
        f"{name}: {'no bound' if one.itl_ms is None else f'{one.itl_ms:g} ms'} between tokens,"
        f" first one within {(one.ttft_ms or 0) / 1000:g} s"
        for name, one in CLASSES.by_name.items()
    )
    return (
        f"Each request is of one of three classes, with equal chances ({classes}; 99% of each)."
        " A rate holds where in the second half of a run 99% of the gaps of each class and of its"
        " first tokens are in time, and as many requests have their first token as come, but for"
        " 2%: no queue grows that a deadline of ten minutes would hide. The fleet has three"
        " engines, and figures are of one of them: with classes in one engine each has a third of"
        " all requests; separated, each has those of one class under an SLA of its own, and the"
        " fleet holds what the weakest of the three does. `divided`: a fleet so large that an"
        " expert can give each class as many engines as it needs. `one SLA for all`: the strictest,"
        " which is what `adaptive` does without classes that differ. QoServe knows each request's"
        " promise and orders by its own deadlines; tuned: the best of"
        f" {len(SETTINGS)} settings on the draw of seed {PILOT_SEED}."
        f" Seeds {', '.join(map(str, bench.seeds))}. In the second table: the less of first tokens"
        " and of gaps in time, and in parentheses the share of the finished requests that had both"
        " for themselves; the least of all seeds."
    )
