"""How soon first tokens come as before, once a disturbance is over: the rows of ``--recovery``.

Two minutes undisturbed, then a disturbance of 30 or 120 s, then three minutes undisturbed. A policy
is back to normal from the first window of ten seconds on in which the median TTFT of the requests
that came is at most 1.2 times that of the last minute before the disturbance. Beside it the static
setting that was found to be the best for the row of ``make disturbed`` of the same name.
"""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from benchmarks.disturbed import best_static
from benchmarks.disturbed.best_static import settings_of
from benchmarks.disturbed.replays import Draw, trace_of
from benchmarks.disturbed.rows import Row, all_rows
from benchmarks.disturbed.search import STATIC
from benchmarks.report.bootstrap import mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row as Figure
from benchmarks.report.rows import Section
from benchmarks.report.workers import Bench

LOADS = ("257-62@7", "azure@0.75", "h100@0.75")
DISTURBED = ("cv20", "cv60", "pauses-5x100", "half-speed", "slow-40s", "cv10-pauses-5x40")
LASTS_S = (30.0, 120.0)
BEGIN_S, AFTER_S = 120.0, 180.0
BEFORE_S, WINDOW_S, EVERY_S = 60.0, 10.0, 2.0
NORMAL, LATER_S = 1.2, 10.0


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on one draw of a row that is disturbed for a while."""

    row: Row
    spec: str
    lasts_s: float
    seed: int


def measure(task: Task) -> float:
    """Seconds from the end of the disturbance until it is back to normal."""
    draw, until_s = Draw(task.row), BEGIN_S + task.lasts_s
    disturbances = replace(task.row.disturbed.disturbances, begin_s=BEGIN_S, until_s=until_s)
    n = int(draw.rate_per_s * (until_s + AFTER_S))
    requests = draw.drawn(n, task.seed).at(draw.rate_per_s)
    done = trace_of(draw, task.spec, task.seed, requests, disturbances).outcomes
    came_s = np.array([one.request.arrival_s for one in done])
    first_s = np.array([np.inf if (at := one.first_token_s) is None else at for one in done])

    def median_s(begin_s: float, end_s: float) -> float:
        within = (came_s >= begin_s) & (came_s < end_s)
        return float(np.median((first_s - came_s)[within])) if within.any() else 0.0

    normal_s = NORMAL * median_s(BEGIN_S - BEFORE_S, BEGIN_S)
    for after_s in np.arange(0.0, AFTER_S - WINDOW_S, EVERY_S).tolist():
        begin_s = until_s + after_s
        if median_s(begin_s, begin_s + WINDOW_S) <= normal_s:
            return after_s
    return AFTER_S


def run(bench: Bench) -> Section:
    """Every row, for each duration, with every seed."""
    names = {f"{load} {disturbed}" for load in LOADS for disturbed in DISTURBED}
    rows = [row for row in all_rows() if row.id in names]
    cases = list(product(rows, LASTS_S))[: 1 if bench.small else None]
    settings = settings_of([row for row, _ in cases], best_static.read())
    tasks = [
        Task(row, spec, lasts_s, seed)
        for row, lasts_s in cases
        for spec in (settings[row].of(STATIC), "adaptive")
        for seed in bench.seeds
    ]
    done = iter(bench.map(measure, tasks, "recovery", lambda task: task.spec == "adaptive"))
    figures, lines = [], []
    for row, lasts_s in cases:
        static, ours = ([next(done) for _ in bench.seeds] for _ in range(2))
        later = mean([b - a for a, b in zip(static, ours, strict=True)])
        what = f"normal later than the static setting, {row.id}, {lasts_s:g} s of it"
        figures.append(Figure(f"d2_{row.id} {lasts_s:g}s", what, "s", later, at_most=LATER_S))
        cells = [f"{np.mean(a):.0f} ({min(a):.0f} to {max(a):.0f})" for a in (static, ours)]
        lines.append((row.id, f"{lasts_s:g}", *cells))
    head = ("row", "disturbed for s", "static: normal after s", "adaptive")
    return Section(
        "D2",
        "first tokens after a disturbance",
        str(__doc__).split("\n\n", 1)[1].strip(),
        tuple(figures),
        (markdown_table(head, lines),),
    )
