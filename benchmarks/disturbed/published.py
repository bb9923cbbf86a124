"""Published capacity beside what an engine serves where more comes: the rows of ``--published``.

The first replay is at the row's own rate: the capacity that autoscaling goes by, its median and its
standard deviation within a minute. In the second 1.3 times as much comes: requests/s that end are
what the engine carries. Where it carries more than was published, it does so with late tokens: a
law that lets D go under overload.
"""

from dataclasses import astuple, dataclass

import numpy as np

from benchmarks.disturbed.replays import Draw, trace_of
from benchmarks.disturbed.rows import Row, all_rows
from benchmarks.report.bootstrap import mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row as Figure
from benchmarks.report.rows import Section
from benchmarks.report.workers import Bench
from simulator.replay.measure import late_share
from simulator.virtual.trace import Trace

AT_SEVEN = "nothing", "cv20", "pauses-5x30", "pauses-20x15", "half-speed", "mixed-6", "encoder"
ROWS = (*(f"257-62@7 {one}" for one in AT_SEVEN), "azure@0.75 pauses-5x100", "h100@0.75 cv10")
REQUESTS = 2000
OVERLOAD, OVERLOAD_S = 1.3, 240.0
SETTLED, LAST = 0.4, 0.95  # of a replay: what is looked at
WINDOW_S = 60.0
WITHIN, STEADY = 0.15, 0.1


@dataclass(frozen=True, slots=True)
class Task:
    """A row and the seed of its requests and disturbances."""

    row: Row
    seed: int
    small: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What two replays showed.

    Args:
        published_per_s: the median at the row's rate.
        none: share of the steps in which none was published, or 0: SLA out of reach.
        served_per_s, late_share: under overload.
        deviation: the largest standard deviation within ``WINDOW_S``, share of the median.
    """

    published_per_s: float
    none: float
    served_per_s: float
    late_share: float
    deviation: float


def measure(task: Task) -> Found:
    """Both replays."""
    draw = Draw(task.row)

    def replayed(rate_per_s: float, n: int) -> Trace:
        return trace_of(draw, "adaptive", task.seed, draw.drawn(n, task.seed).at(rate_per_s))

    trace = replayed(draw.rate_per_s, min(draw.count, 300 if task.small else REQUESTS))
    end_s, published = trace.column("end_s"), np.nan_to_num(trace.column("capacity_per_s"))
    settled = (end_s > SETTLED * end_s[-1]) & (end_s < LAST * end_s[-1])
    end_s, published = end_s[settled], published[settled]
    median = float(np.median(published))
    deviations = [
        float(published[(end_s >= at_s) & (end_s < at_s + WINDOW_S)].std())
        for at_s in np.arange(end_s[0], max(end_s[-1] - WINDOW_S / 2, end_s[0] + 1), WINDOW_S / 2)
    ]
    rate_per_s = OVERLOAD * max(median, draw.rate_per_s)
    over_s = OVERLOAD_S / (8 if task.small else 1)
    over = replayed(rate_per_s, int(rate_per_s * over_s))
    ended_s = np.array([one.finished_s for one in over.outcomes if one.finished_s is not None])
    counted = (ended_s > SETTLED * over_s) & (ended_s < LAST * over_s)
    return Found(
        median,
        float((published <= 0).mean()),
        float(counted.sum()) / ((LAST - SETTLED) * over_s),
        late_share(over, draw.sla) or 0.0,
        max(deviations) / max(median, 1e-9),
    )


def run(bench: Bench) -> Section:
    """Every row with every seed."""
    by_id = {row.id: row for row in all_rows()}
    names = ROWS[:1] if bench.small else ROWS
    tasks = [Task(by_id[name], seed, bench.small) for name in names for seed in bench.seeds]
    done = iter(bench.map(measure, tasks, "published"))
    figures, lines = [], []
    for name in names:
        found = [next(done) for _ in bench.seeds]
        ratio = mean([one.published_per_s / one.served_per_s for one in found])
        steady, within = mean([one.deviation for one in found]), (1 - WITHIN, 1 + WITHIN)
        what = f"published over served, {name}", f"deviation within a minute, {name}"
        figures += [
            Figure(f"d3_{name}", what[0], "ratio", ratio, *within),
            Figure(f"d3_sd_{name}", what[1], "", steady, at_most=STEADY),
        ]
        per_s, none, served_per_s, late, _ = np.mean([astuple(one) for one in found], axis=0)
        cells = f"{per_s:.2f}", f"{100 * none:.1f}", f"{served_per_s:.2f}", f"{100 * late:.1f}"
        lines.append((name, *cells))
    head = ("row", "published/s", "none or 0 %", "served/s", "late % under overload")
    return Section(
        "D3",
        "published capacity beside what is served where more comes",
        str(__doc__).split("\n\n", 1)[1].strip(),
        tuple(figures),
        (markdown_table(head, lines),),
    )
