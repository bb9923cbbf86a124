"""The figures of docs/results/elastic.md once more, in an hour or two instead of a day.

Nothing is searched but the oracle's plan: each rival runs at the setting that an earlier search had
ended with (``starts.json``), on each day that it has one for.
"""

from collections.abc import Sequence

from benchmarks.fleet.bench import Bench, NotKeptError
from benchmarks.fleet.contest import Found
from benchmarks.fleet.one_for_all import OneForAll, groups
from benchmarks.fleet.page import rows_of
from benchmarks.fleet.starts import Starts
from benchmarks.report.rows import Row
from simulator.fleet.policies import RIVALS


def run(
    benches: Sequence[Bench], starts: Starts, names: Sequence[str]
) -> tuple[dict[str, Found], list[Row]]:
    """What each policy made of each day, and the figures of it.

    Args:
        names: the policies that run beside ours and the oracle.
    """
    found: dict[str, Found] = {b.day.name: b.without_search(names) for b in benches}
    runs = {bench.day.name: bench for bench in benches}
    shared = {
        group: _one_setting(group, [runs[day] for day in days], starts, names)
        for group, days in groups(found).items()
    }
    # A better rival may be found, so no aim beside one is met.
    cut = dict.fromkeys(found, dict.fromkeys(RIVALS, 1))
    return found, rows_of(found, cut, shared)


def _one_setting(
    group: str, benches: Sequence[Bench], starts: Starts, names: Sequence[str]
) -> OneForAll | None:
    """The best of the settings that keep the SLA on all of these days; None: none is known."""
    best: OneForAll | None = None
    for name in RIVALS:
        spec = starts.of(group, name)
        if spec is None or name not in names:
            continue
        try:
            made = {bench.day.name: bench.run(spec) for bench in benches}
        except NotKeptError:
            continue
        one = OneForAll(spec, made, (name,))
        if all(day.keeps for day in made.values()):
            best = one if best is None else min(best, one, key=lambda each: each.mean_hours)
    return best
