"""The picture of ``make bench-pd``: each arm over aggregated engines, row by row."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.pd.measure import AGGREGATED, AUTO, Task, rule_of
from benchmarks.pd.table import LEAST, RIVALS, by_row, name_of

LABELS = {AUTO: "auto", "": "best fixed ratio", **RIVALS}


def draw(found: Mapping[Task, float], path: Path) -> None:
    """Write the picture.

    Args:
        found: requests/s of an engine.
    """
    import matplotlib.figure  # not before it is asked for: it takes half a second

    rows = by_row(found)
    figure = matplotlib.figure.Figure(figsize=(9, 1 + 0.6 * len(rows)), layout="constrained")
    axes, height = figure.subplots(), 0.8 / len(LABELS)
    for place, (rule, label) in enumerate(LABELS.items()):
        at, ratios = [], []
        for k, per_s in enumerate(rows.values()):
            if of := [value for arm, value in per_s.items() if rule_of(arm) == rule]:
                at.append(k + (place - len(LABELS) / 2 + 0.5) * height)
                ratios.append(max(of) / max(per_s[AGGREGATED], LEAST))
        if at:
            axes.barh(at, ratios, height, label=label)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [name_of(row) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("capacity inside the SLA over aggregated engines")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
