"""The rows of the table, who is compared on them, and the figures they come to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks.pd.measure import AGGREGATED, AUTO, PdRow, Task, fluid_splits
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, exactly, shown

WORKLOADS = {
    "257/62": "exponential:257,62",
    "257/447": "exponential:257,447",
    "conversation": "azure-2023-conversation",
    # Lengths of Azure's code trace, 2,048 and 28 tokens on average; the trace is not shipped here.
    "code": "lognormal:2048,28,1",
    "long": "lognormal:4096,200,0.5",
}
ENGINES, ITLS_MS, LINKS_GBIT_S = (4, 16), (50.0, 100.0), (25.0, 200.0)
OVER_AGGREGATED, OVER_MEAN, OVER_FIXED = 1.0, 1.25, 0.95
LEAST = 1e-3  # requests/s: what counts for an arm that no rate holds


def rows_of(
    engines: Sequence[int],
    workloads: Sequence[str],
    itls_ms: Sequence[float],
    links_gbit_s: Sequence[float],
) -> list[PdRow]:
    """All of these together."""
    return [
        PdRow(n, WORKLOADS[name], itl_ms, link)
        for n in engines
        for name in workloads
        for itl_ms in itls_ms
        for link in links_gbit_s
    ]  # fmt: skip


def name_of(row: PdRow) -> str:
    """For people."""
    word = next(name for name, spec in WORKLOADS.items() if spec == row.workload)
    return f"{word}, {row.engines} engines, {row.itl_ms:g} ms, {row.link_gbit_s:g} Gbit/s"


def arms_of(row: PdRow, seed: int, fixed: int) -> list[str]:
    """Who is compared on a row.

    Args:
        fixed: of the fixed ratios as many, the best ones by the closed form; 0: all.
    """
    bounds = fluid_splits(row, seed, direct=False)[1:]
    best = sorted(bounds, key=lambda one: -one.per_s)[: fixed or None]
    ratios = [f"{one.prefill}:{row.engines - one.prefill}" for one in best]
    return [AGGREGATED, AUTO, *ratios]


def without_link(task: Task) -> Task:
    """The same replay, where no KV goes from engine to engine."""
    if task.arm != AGGREGATED:
        return task
    return replace(task, row=replace(task.row, link_gbit_s=LINKS_GBIT_S[0]))


def figures(found: Mapping[Task, float]) -> list[Row]:
    """``auto`` over aggregated, and over the best fixed ratio, of each row; and their means."""
    made: list[Row] = []
    over: dict[float, list[float]] = {}
    for row, per_s in by_row(found).items():
        auto = max(per_s[AUTO], LEAST)
        ratio = auto / max(per_s[AGGREGATED], LEAST)
        over.setdefault(row.itl_ms, []).append(ratio)
        made.append(_row(row, "aggregated", "over aggregated", ratio, OVER_AGGREGATED))
        if ratios := [arm for arm in per_s if ":" in arm]:
            best = max(ratios, key=lambda arm: per_s[arm])
            what = f"over the best fixed ratio ({best})"
            made.append(_row(row, "fixed", what, auto / max(per_s[best], LEAST), OVER_FIXED))
    for itl_ms, ratios_of in sorted(over.items()):
        mean = math.exp(sum(map(math.log, ratios_of)) / len(ratios_of))
        made.append(
            Row(
                f"pd_mean_{itl_ms:g}ms",
                f"over aggregated, geometric mean of {len(ratios_of)} rows at {itl_ms:g} ms",
                "ratio",
                exactly(mean),
                at_least=OVER_MEAN if itl_ms == ITLS_MS[0] else None,
            )
        )
    return made


def _row(row: PdRow, kind: str, what: str, value: float, least: float) -> Row:
    name = name_of(row)
    word = name.replace(" engines", "").replace(", ", "_").replace(" ", "").replace("/", "-")
    return Row(f"pd_{kind}_{word}", f"{name}: {what}", "ratio", exactly(value), at_least=least)


def by_row(found: Mapping[Task, float]) -> dict[PdRow, dict[str, float]]:
    """Requests/s of an engine, by row and arm."""
    rows: dict[PdRow, dict[str, float]] = {}
    for task, per_s in found.items():
        rows.setdefault(task.row, {})[task.arm] = per_s
    return rows


def table(found: Mapping[Task, float]) -> str:
    """Requests/s of an engine, by arm."""
    lines = []
    for row, per_s in by_row(found).items():
        rest = [f"{arm} {shown(value)}" for arm, value in per_s.items() if ":" in arm]
        lines.append((name_of(row), shown(per_s[AGGREGATED]), shown(per_s[AUTO]), "; ".join(rest)))
    return markdown_table(("row", "aggregated", "auto", "fixed, prefill:decode"), lines)
