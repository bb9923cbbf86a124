"""R1's figures and tables, from what was found on each draw."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.contests.catalog import Contest
from benchmarks.contests.entry import Chosen, Tuned, raced
from benchmarks.contests.sweeps import Point
from benchmarks.report.bootstrap import geometric_mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, shown

SHARED = "paper-fig3"  # whose contests one setting of each rival is to serve as well
ALL = f"all on {SHARED}"
ADAPTIVE = "adaptive"
TUNED, ONE = 0.99, 1.05  # wanted over the best tuned rival, and over the best one for all
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
        all_rivals: none was left out; else nothing is said about the best of them.
        of: ends the ids of figures over each rival, where it is not all contests.
    """

    contests: tuple[Contest, ...]
    rivals: tuple[str, ...]
    tuned: dict[Key, Tuned] = field(default_factory=dict)
    one: dict[str, Chosen] = field(default_factory=dict)
    pilot: dict[str, float] = field(default_factory=dict)
    per_s: dict[Key, list[float]] = field(default_factory=dict)
    of: str = ""
    all_rivals: bool = True

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


def rows_of(found: Raced) -> list[Row]:
    """The figures with their targets."""
    best = [found.best(c) for c in found.contests]
    tuned, one_for_all = (TUNED, ONE) if found.all_rivals else (None, None)
    some = "" if found.all_rivals else f" of {', '.join(found.rivals)}"
    what = f"over the best rival{some} tuned for the workload"
    rows = []
    if len(found.contests) > 1:
        rows = [Row("r1_tuned", f"{what}, all", "ratio", geometric_mean(best), at_least=tuned)]
    ones = {
        rival: [found.over(c, found.one[rival].point.spec) for c in found.alike]
        for rival in found.worth_one
    }
    if ones:
        hardest = min(ones, key=lambda rival: geometric_mean(ones[rival]).value)
        one = f"over the best rival{some} with one setting for all on {SHARED}, {hardest}"
        rows.append(
            Row("r1_one", one, "ratio", geometric_mean(ones[hardest]), at_least=one_for_all)
        )
    for contest, ratios in zip(found.contests, best, strict=True):
        row = f"r1_tuned_{contest.name}"
        ratio = geometric_mean([ratios])
        rows.append(Row(row, f"{what}, {contest.name}", "ratio", ratio, at_least=tuned))
    of = f"_{found.of}" if found.of else ""
    for rival in found.rivals:
        every = [[found.pilot[c.name] / found.tuned[c.name, rival].frac] for c in found.contests]
        what = f"over {rival}, tuned on the pilot's draw and there, all"
        rows.append(Row(f"r1{of}_{rival}", what, "ratio", geometric_mean(every)))
    return rows


def capacities_table(found: Raced) -> str:
    """Each rival on the pilot's draw, and on the others where it is worth it."""
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


def settings_table(found: Raced) -> str:
    """The tuned settings."""
    lines = [(name, f"`{tuned.point.spec}`") for (name, _), tuned in found.tuned.items()]
    lines += [(ALL, f"`{one.point.spec}`") for one in found.one.values()]
    return markdown_table(("tuned on the pilot's draw", "setting"), lines)
