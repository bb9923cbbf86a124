"""R1: capacity at a percentile of every gap between tokens, against the named rivals.

Each rival is tuned for each workload on the pilot's draw, and has one setting beside that which
serves all contests of a profile; then every draw of the figures is searched with both. Outputs like
a reasoning model's take as long as all the others together, and are a part of their own
(``R1-reasoning``), without one setting for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.contests.catalog import CONTESTS, Contest, on_paper
from benchmarks.contests.contest import LEFT_S, NEAR, Draw, Task
from benchmarks.contests.entry import (
    MORE,
    STEPS,
    Choice,
    Chosen,
    Entry,
    Tuned,
    Tuning,
    capacity,
    choose,
    is_ours,
    raced,
    rivals_alone,
    tune_rival,
    tune_static,
)
from benchmarks.contests.sweeps import LONGEST, LONGEST_TOKENS, SWEEPS, Point, published
from benchmarks.report.bootstrap import geometric_mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench

SHARED = "paper-fig3"  # whose contests one setting of each rival is to serve as well
LONG = on_paper("long-prompts", "long-prompts:257,447", 0.1)
# Answers that stop in their middle let an engine take more than the fluid limit for a while.
REASONING = replace(on_paper("reasoning", "reasoning:257,3000,1.3", 0.1), top=1.5)
RUN_S = 120.0  # what is left for good in a shorter run is too few for `LEFT_S`
GROUNDS = (*(replace(c, run_s=max(c.run_s, RUN_S)) for c in CONTESTS), LONG)
ADAPTIVE = "adaptive"
TUNED, ONE = (
    0.99,
    1.05,
)  # what `adaptive` is to have over the best tuned rival, and over one for all
# A rival that reached less than this share of the best one's capacity on the pilot's draw is not
# searched on every other draw: ratios of two policies differ between draws by up to a tenth.
WORTH = 0.85


Key = tuple[str, str]  # contest and spec


@dataclass(slots=True)
class Raced:
    """What was found.

    Args:
        tuned: by contest and rival.
        one: by rival: what serves all contests of ``SHARED``.
        pilot: by contest, the capacity of ``adaptive`` on the pilot's draw, share of the limit.
        per_s: by contest and spec, a capacity for each seed.
    """

    contests: tuple[Contest, ...]
    rivals: tuple[str, ...]
    tuned: dict[Key, Tuned] = field(default_factory=dict)
    one: dict[str, Chosen] = field(default_factory=dict)
    pilot: dict[str, float] = field(default_factory=dict)
    per_s: dict[Key, list[float]] = field(default_factory=dict)

    def over(self, contest: Contest, spec: str) -> list[float]:
        """The capacity of ``adaptive`` over another's, for each seed."""
        own, others = self.per_s[contest.name, ADAPTIVE], self.per_s[contest.name, spec]
        return [a / b for a, b in zip(own, others, strict=True)]

    def best(self, contest: Contest) -> list[float]:
        """The same over the best tuned rival of each draw."""
        specs = [self.tuned[contest.name, rival].point.spec for rival in self.worth(contest)]
        ratios = [self.over(contest, spec) for spec in specs]
        return [min(of_draw) for of_draw in zip(*ratios, strict=True)]

    def worth(self, contest: Contest) -> list[str]:
        """The rivals whose tuned setting is searched on every draw."""
        fracs = [self.tuned[contest.name, rival].frac for rival in self.rivals]
        return [r for r, yes in zip(self.rivals, raced(fracs, WORTH), strict=True) if yes]

    @property
    def worth_one(self) -> list[str]:
        """The rivals whose one setting for all is searched on every draw."""
        if not self.one:
            return []
        means = [_mean(self.one[rival].fracs) for rival in self.rivals]
        return [r for r, yes in zip(self.rivals, raced(means, WORTH), strict=True) if yes]

    @property
    def alike(self) -> list[Contest]:
        """The contests on ``SHARED``."""
        return [c for c in self.contests if c.profile == SHARED]


def _mean(fracs: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(fracs))))


def run(bench: Bench, names: Sequence[str] = ()) -> Section:
    """Tune all rivals, choose one setting of each for all, then race on every seed.

    Args:
        names: of the contests; none: all of them.
    """
    contests = tuple(c for c in GROUNDS if not names or c.name in names)
    return _run(bench, "R1", contests[:1] if bench.small and not names else contests)


def run_reasoning(bench: Bench, names: Sequence[str] = ()) -> Section:
    """The same with outputs like a reasoning model's."""
    return _run(bench, "R1-reasoning", (REASONING,))


def _run(bench: Bench, name: str, contests: tuple[Contest, ...]) -> Section:
    rivals = tuple(SWEEPS)[:2] if bench.small else tuple(SWEEPS)
    found = Raced(contests, rivals)
    _tune(bench, found)
    _choose(bench, found)
    _race(bench, found)
    what = " with outputs like a reasoning model's" if contests == (REASONING,) else ""
    return Section(
        name,
        f"capacity at p99 of every gap{what}, against named rivals",
        _text(bench, found),
        tuple(rows_of(found)),
        (_capacities(found), _settings(found)),
    )


def _tune(bench: Bench, found: Raced) -> None:
    pilots = [Task(c, small=bench.small) for c in found.contests]
    statics = bench.map(tune_static, pilots, "R1 static", rivals_alone)
    tunings = [
        Tuning(task, rival, static)
        for task, static in zip(pilots, statics, strict=True)
        for rival in found.rivals
    ]
    done = bench.map(tune_rival, tunings, "R1 rivals", rivals_alone)
    for tuning, tuned in zip(tunings, done, strict=True):
        found.tuned[tuning.task.contest.name, tuning.rival] = tuned


def _choose(bench: Bench, found: Raced) -> None:
    """Of each rival, the one setting with the best geometric mean on the pilot's draws."""
    alike = tuple(found.alike)
    if len(alike) < 2:
        return
    choices = []
    for rival in found.rivals:
        tuned = tuple(found.tuned[c.name, rival] for c in alike)
        points = tuple(dict.fromkeys([*(one.point for one in tuned), published(rival)]))
        choices.append(Choice(alike, bench.small, points, tuned))
    done = bench.map(choose, choices, "R1 one for all", rivals_alone)
    found.one = dict(zip(found.rivals, done, strict=True))


def _race(bench: Bench, found: Raced) -> None:
    entries, pilots = [], []
    for contest in found.contests:
        near = {ADAPTIVE: NEAR[ADAPTIVE]}
        if contest in found.alike:
            place = found.alike.index(contest)
            for rival in found.worth_one:
                near[found.one[rival].point.spec] = found.one[rival].fracs[place]
        for rival in found.worth(contest):
            tuned = found.tuned[contest.name, rival]
            near[tuned.point.spec] = tuned.frac
        pilots.append(Entry(contest, PILOT_SEED, bench.small, ADAPTIVE, NEAR[ADAPTIVE]))
        entries += [
            Entry(contest, seed, bench.small, spec, frac)
            for spec, frac in near.items()
            for seed in bench.seeds
        ]
    done = bench.map(capacity, [*entries, *pilots], "R1 capacities", is_ours)
    for entry, per_s in zip(entries, done, strict=False):
        found.per_s.setdefault((entry.contest.name, entry.spec), []).append(per_s)
    for entry, per_s in zip(pilots, done[len(entries) :], strict=True):
        draw = Draw(Task(entry.contest, entry.seed, entry.small))
        found.pilot[entry.contest.name] = draw.frac(per_s)


def rows_of(found: Raced) -> list[Row]:
    """The figures with their targets."""
    best = [found.best(c) for c in found.contests]
    what = "over the best rival tuned for the workload"
    rows = []
    if len(found.contests) > 1:
        rows = [Row("r1_tuned", f"{what}, all", "ratio", geometric_mean(best), at_least=TUNED)]
    ones = {
        rival: [found.over(c, found.one[rival].point.spec) for c in found.alike]
        for rival in found.worth_one
    }
    if ones:
        hardest = min(ones, key=lambda rival: geometric_mean(ones[rival]).value)
        one = f"over the best rival with one setting for all on {SHARED}, {hardest}"
        rows.append(Row("r1_one", one, "ratio", geometric_mean(ones[hardest]), at_least=ONE))
    for contest, ratios in zip(found.contests, best, strict=True):
        row = f"r1_tuned_{contest.name}"
        ratio = geometric_mean([ratios])
        rows.append(Row(row, f"{what}, {contest.name}", "ratio", ratio, at_least=TUNED))
    of = f"_{REASONING.name}" if found.contests == (REASONING,) else ""
    for rival in found.rivals:
        every = [[found.pilot[c.name] / found.tuned[c.name, rival].frac] for c in found.contests]
        what = f"over {rival}, tuned on the pilot's draw and there, all"
        rows.append(Row(f"r1{of}_{rival}", what, "ratio", geometric_mean(every)))
    return rows


def _capacities(found: Raced) -> str:
    lines = []
    for contest in found.contests:
        own = found.pilot[contest.name]
        lines.append((contest.name, "`adaptive`", "", shown(own), *_raced(found, contest, None)))
        for rival in found.rivals:
            tuned = found.tuned[contest.name, rival]
            searched = tuned.point if rival in found.worth(contest) else None
            cells = _raced(found, contest, searched) if searched else ("", "")
            lines.append((contest.name, rival, "tuned", shown(tuned.frac), *cells))
            if contest not in found.alike or not found.one:
                continue
            one, place = found.one[rival], found.alike.index(contest)
            searched = one.point if rival in found.worth_one else None
            cells = _raced(found, contest, searched) if searched else ("", "")
            lines.append((contest.name, rival, "one for all", shown(one.fracs[place]), *cells))
    head = (
        "workload",
        "policy",
        "constants",
        "pilot's draw, of the fluid limit",
        "requests/s, by seed",
        "`adaptive` over it",
    )
    return markdown_table(head, lines)


def _raced(found: Raced, contest: Contest, point: Point | None) -> tuple[str, str]:
    """The capacities by seed, and the ratio; of ``adaptive`` where no point is given."""
    if point is None:
        return _rates(found.per_s[contest.name, ADAPTIVE]), ""
    ratio = geometric_mean([found.over(contest, point.spec)]).value
    return _rates(found.per_s[contest.name, point.spec]), shown(ratio)


def _rates(per_s: Sequence[float]) -> str:
    return ", ".join(map(shown, per_s))


def _settings(found: Raced) -> str:
    lines = [(name, f"`{tuned.point.spec}`") for (name, _), tuned in found.tuned.items()]
    lines += [(f"all on {SHARED}", f"`{one.point.spec}`") for one in found.one.values()]
    return markdown_table(("tuned on the pilot's draw", "setting"), lines)


def _workloads(found: Raced) -> str:
    if found.contests == (REASONING,):
        return f"`{REASONING.workload}` (outputs of 3,000 tokens on average, CV 1.3) on `{SHARED}`."
    return (
        f"The contests of G3, and on `{SHARED}` `{LONG.workload}` (5% of the prompts have 16k to"
        " 32k tokens)."
    )


def _text(bench: Bench, found: Raced) -> str:
    return (
        f"{_workloads(found)} By the criteria of G3 over {RUN_S:g} s at least, and besides of the"
        " prompt tokens that came no more are left to compute, on average over the second half of"
        f" a run, than come in {LEFT_S:g} s and the longest prompt has: some rivals do not serve in"
        " the order of arrival, and half of the requests have a short delay as well where long"
        " prompts are left for good."
        f" Seeds {', '.join(map(str, bench.seeds))}. Rivals: {', '.join(found.rivals)}, each with"
        f" the engine's two limits, its `{LONGEST}` ({', '.join(map(str, LONGEST_TOKENS))}) and its"
        f" own constants tuned together on the draw of seed {PILOT_SEED}, for each workload by"
        " itself: from the best static setting and from the"
        f" published constants to the better neighbour, {STEPS[0]:.0%} away in a constant, or"
        " another of its choices. The best rival is the best on each draw of those that were"
        " searched there. One setting for all: of the settings tuned for the contests on"
        f" `{SHARED}` and the published one, the best in geometric mean on the pilot's draws, of"
        f" each rival, as far as one is seen that does no more than {MORE:.0%} better than what was"
        " tuned for a contest. What reached less than"
        f" {WORTH:g} of the best of them on the pilot's draw was not searched on the others, and"
        " has no rates by seed. Rivals that go by a step"
        " time know the profile's exactly (the refiner in a table, whose steps are the bench's);"
        " `adaptive` has to learn it. `adaptive` has one set of"
        " constants, on vLLM's default engine, everywhere."
    )
