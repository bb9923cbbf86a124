"""R1: capacity at a percentile of every gap between tokens, against the named rivals.

Each rival is tuned for each workload on the pilot's draw, and has one setting beside that which
serves all contests of a profile; then every draw of the figures is searched with both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.contests.catalog import CONTESTS, Contest, on_paper
from benchmarks.contests.contest import NEAR, Task, tune
from benchmarks.contests.entry import (
    STEPS,
    Entry,
    Tuning,
    capacity,
    is_ours,
    rivals_alone,
    tune_rival,
)
from benchmarks.contests.sweeps import SWEEPS, Point, published
from benchmarks.report.bootstrap import geometric_mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench

SHARED = "paper-fig3"  # whose contests one setting of each rival is to serve as well
LONG = on_paper("long-prompts", "long-prompts:257,447", 0.1)
REASONING = on_paper("reasoning", "reasoning:257,3000,1.3", 0.1)
GROUNDS = (*CONTESTS, LONG, REASONING)
ADAPTIVE = "adaptive"
TUNED, ONE = (
    0.99,
    1.05,
)  # what `adaptive` is to have over the best tuned rival, and over one for all


Key = tuple[str, str]  # contest and spec


@dataclass(slots=True)
class Raced:
    """What was found.

    Args:
        tuned: by contest and rival.
        one: by rival: what serves all contests of ``SHARED``.
        per_s: by contest and spec, a capacity for each seed.
    """

    contests: tuple[Contest, ...]
    rivals: tuple[str, ...]
    tuned: dict[Key, Point] = field(default_factory=dict)
    one: dict[str, Point] = field(default_factory=dict)
    per_s: dict[Key, list[float]] = field(default_factory=dict)

    def over(self, contest: Contest, spec: str) -> list[float]:
        """The capacity of ``adaptive`` over another's, for each seed."""
        own, others = self.per_s[contest.name, ADAPTIVE], self.per_s[contest.name, spec]
        return [a / b for a, b in zip(own, others, strict=True)]

    def best(self, contest: Contest) -> list[float]:
        """The same over the best tuned rival of each draw."""
        ratios = [self.over(contest, self.tuned[contest.name, r].spec) for r in self.rivals]
        return [min(of_draw) for of_draw in zip(*ratios, strict=True)]

    @property
    def alike(self) -> list[Contest]:
        """The contests on ``SHARED``."""
        return [c for c in self.contests if c.profile == SHARED]


def run(bench: Bench, names: Sequence[str] = ()) -> Section:
    """Tune all rivals, choose one setting of each for all, then race on every seed.

    Args:
        names: of the contests; none: all of them.
    """
    contests = tuple(c for c in GROUNDS if not names or c.name in names)
    contests = contests[:1] if bench.small and not names else contests
    rivals = tuple(SWEEPS)[:2] if bench.small else tuple(SWEEPS)
    raced = Raced(contests, rivals)
    _tune(bench, raced)
    _choose(bench, raced)
    _race(bench, raced)
    return Section(
        "R1",
        "capacity at p99 of every gap, against named rivals",
        _text(bench, raced),
        tuple(rows_of(raced)),
        (_capacities(raced), _settings(raced)),
    )


def _tune(bench: Bench, raced: Raced) -> None:
    pilots = [Task(c, small=bench.small) for c in raced.contests]
    statics = bench.map(tune, pilots, "R1 static", rivals_alone)
    tunings = [
        Tuning(task, rival, static)
        for task, static in zip(pilots, statics, strict=True)
        for rival in raced.rivals
    ]
    found = bench.map(tune_rival, tunings, "R1 rivals", rivals_alone)
    for tuning, point in zip(tunings, found, strict=True):
        raced.tuned[tuning.task.contest.name, tuning.rival] = point


def _choose(bench: Bench, raced: Raced) -> None:
    """Of each rival, the one setting with the best geometric mean on the pilot's draws."""
    alike = raced.alike
    if not alike:
        return
    points = {
        rival: list(dict.fromkeys([*(raced.tuned[c.name, rival] for c in alike), published(rival)]))
        for rival in raced.rivals
    }
    entries = [
        Entry(contest, PILOT_SEED, bench.small, point.spec, 0.8)
        for of_rival in points.values()
        for point in of_rival
        for contest in alike
    ]
    done = iter(bench.map(capacity, entries, "R1 one for all", is_ours))
    for rival, of_rival in points.items():
        means = [float(np.mean(np.log([next(done) for _ in alike]))) for _ in of_rival]
        raced.one[rival] = of_rival[int(np.argmax(means))]


def _race(bench: Bench, raced: Raced) -> None:
    entries = []
    for contest in raced.contests:
        specs = [ADAPTIVE, *(raced.tuned[contest.name, rival].spec for rival in raced.rivals)]
        if contest in raced.alike:
            specs += [raced.one[rival].spec for rival in raced.rivals]
        entries += [
            Entry(contest, seed, bench.small, spec, NEAR.get(spec, 0.8))
            for spec in dict.fromkeys(specs)
            for seed in bench.seeds
        ]
    done = bench.map(capacity, entries, "R1 capacities", is_ours)
    for entry, per_s in zip(entries, done, strict=True):
        raced.per_s.setdefault((entry.contest.name, entry.spec), []).append(per_s)


def rows_of(raced: Raced) -> list[Row]:
    """The figures with their targets."""
    best = [raced.best(c) for c in raced.contests]
    what = "over the best rival tuned for the workload"
    rows = [Row("r1_tuned", f"{what}, all", "ratio", geometric_mean(best), at_least=TUNED)]
    if raced.alike:
        ones = {
            rival: [raced.over(c, raced.one[rival].spec) for c in raced.alike]
            for rival in raced.rivals
        }
        hardest = min(ones, key=lambda rival: geometric_mean(ones[rival]).value)
        one = f"over the best rival with one setting for all on {SHARED}, {hardest}"
        rows.append(Row("r1_one", one, "ratio", geometric_mean(ones[hardest]), at_least=ONE))
    for contest, ratios in zip(raced.contests, best, strict=True):
        row = f"r1_tuned_{contest.name}"
        ratio = geometric_mean([ratios])
        rows.append(Row(row, f"{what}, {contest.name}", "ratio", ratio, at_least=TUNED))
    for rival in raced.rivals:
        every = [raced.over(c, raced.tuned[c.name, rival].spec) for c in raced.contests]
        rows.append(Row(f"r1_{rival}", f"over {rival}, tuned, all", "ratio", geometric_mean(every)))
    return rows


def _capacities(raced: Raced) -> str:
    lines = []
    for contest in raced.contests:
        own = raced.per_s[contest.name, ADAPTIVE]
        lines.append((contest.name, "`adaptive`", "", _rates(own), ""))
        for rival in raced.rivals:
            kinds = {"tuned": raced.tuned[contest.name, rival]}
            if contest in raced.alike:
                kinds["one for all"] = raced.one[rival]
            for kind, point in kinds.items():
                ratio = shown(geometric_mean([raced.over(contest, point.spec)]).value)
                rates = _rates(raced.per_s[contest.name, point.spec])
                lines.append((contest.name, rival, kind, rates, ratio))
    head = "workload", "policy", "constants", "requests/s, by seed", "`adaptive` over it"
    return markdown_table(head, lines)


def _rates(per_s: Sequence[float]) -> str:
    return ", ".join(map(shown, per_s))


def _settings(raced: Raced) -> str:
    lines = [(name, f"`{point.spec}`") for (name, _), point in raced.tuned.items()]
    lines += [(f"all on {SHARED}", f"`{point.spec}`") for point in raced.one.values()]
    return markdown_table(("tuned on the pilot's draw", "setting"), lines)


def _text(bench: Bench, raced: Raced) -> str:
    return (
        "The contests of G3, by its criteria and runs, and two more on"
        f" `{SHARED}`: `{LONG.workload}` (5% of the prompts have 16k to 32k tokens) and"
        f" `{REASONING.workload}` (outputs of 3,000 tokens on average, CV 1.3)."
        f" Seeds {', '.join(map(str, bench.seeds))}. Rivals: {', '.join(raced.rivals)}, each with"
        " the engine's two limits and its own constants tuned together on the draw of seed"
        f" {PILOT_SEED}, for each workload by itself: from the best static setting and from the"
        f" published constants to the better neighbour, {STEPS[0]:.0%} away in a constant, or"
        " another of its choices. The best rival is the best of all on each draw. One setting for"
        f" all: of the settings tuned for the contests on `{SHARED}` and the published one, the"
        " best in geometric mean on the pilot's draws, of each rival. Rivals that go by a step"
        " time know the profile's exactly; `adaptive` has to learn it. `adaptive` has one set of"
        " constants, on vLLM's default engine, everywhere."
    )
