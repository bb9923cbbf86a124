"""Published capacity beside what an engine serves where more comes: the rows of ``--published``.

The first replay is at the row's own rate: the capacity that autoscaling goes by, its median and its
standard deviation within a minute. In the second 1.3 times as much comes: requests/s that end are
what the engine carries. Where it carries more than was published, it does so with late tokens: a
law that lets D go under overload.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.disturbed.replays import Draw
from benchmarks.disturbed.rows import Row, all_rows
from benchmarks.report.bootstrap import mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row as Figure
from benchmarks.report.rows import Section
from benchmarks.report.workers import Bench
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import late_share
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace

ROWS = (
    "257-62@7 nothing",
    "257-62@7 cv20",
    "257-62@7 pauses-5x30",
    "257-62@7 pauses-20x15",
    "257-62@7 half-speed",
    "257-62@7 mixed-6",
    "257-62@7 encoder",
    "azure@0.75 pauses-5x100",
    "h100@0.75 cv10",
)
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
        deviation: the largest standard deviation within ``WINDOW_S``, share of it.
        none: share of the steps in which none was published, or 0: SLA out of reach.
        served_per_s, late_share: under overload.
    """

    published_per_s: float
    deviation: float
    none: float
    served_per_s: float
    late_share: float


def measure(task: Task) -> Found:
    """Both replays."""
    draw = Draw(task.row)
    n = min(draw.count, 300 if task.small else REQUESTS)
    trace = _replayed(draw, draw.rate_per_s, n, task.seed)
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
    over = _replayed(draw, rate_per_s, int(rate_per_s * over_s), task.seed)
    ended_s = np.array([one.finished_s for one in over.outcomes if one.finished_s is not None])
    counted = (ended_s > SETTLED * over_s) & (ended_s < LAST * over_s)
    return Found(
        median,
        max(deviations) / max(median, 1e-9),
        float((published <= 0).mean()),
        float(counted.sum()) / ((LAST - SETTLED) * over_s),
        late_share(over, draw.sla) or 0.0,
    )


def _replayed(draw: Draw, rate_per_s: float, n: int, seed: int) -> Trace:
    disturbances = draw.row.disturbed.disturbances
    ground = Ground(draw.profile, disturbances=disturbances, disturbance_seed=seed)
    plan = parse_policy("adaptive", draw.sla, engine_of(draw.profile))
    return replay(draw.drawn(n, seed).at(rate_per_s), plan, ground)


def run(bench: Bench) -> Section:
    """Every row with every seed."""
    by_id = {row.id: row for row in all_rows()}
    names = ROWS[:1] if bench.small else ROWS
    tasks = [Task(by_id[name], seed, bench.small) for name in names for seed in bench.seeds]
    done = iter(bench.map(measure, tasks, "published", lambda task: True))
    figures, lines = [], []
    for name in names:
        found = [next(done) for _ in bench.seeds]
        ratio = mean([one.published_per_s / one.served_per_s for one in found])
        deviation = mean([one.deviation for one in found])
        what = f"published over served, {name}"
        figures.append(
            Figure(f"d3_{name}", what, "ratio", ratio, at_least=1 - WITHIN, at_most=1 + WITHIN)
        )
        what = f"deviation within a minute, {name}"
        figures.append(Figure(f"d3_sd_{name}", what, "", deviation, at_most=STEADY))
        lines.append((name, *_cells(found)))
    head = ("row", "published/s", "none or 0 %", "served/s", "late % under overload")
    return Section(
        "D3",
        "published capacity beside what is served where more comes",
        str(__doc__).split("\n\n", 1)[1].strip(),
        tuple(figures),
        (markdown_table(head, lines),),
    )


def _cells(found: Sequence[Found]) -> tuple[str, ...]:
    return (
        f"{np.mean([one.published_per_s for one in found]):.2f}",
        f"{100 * np.mean([one.none for one in found]):.1f}",
        f"{np.mean([one.served_per_s for one in found]):.2f}",
        f"{100 * np.mean([one.late_share for one in found]):.1f}",
    )
