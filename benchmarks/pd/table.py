"""The cases, the arms that are compared on them, and their figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean

from benchmarks.pd.measure import AGGREGATED, AUTO, PdCase, Task, fluid_splits
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, exactly, shown

WORKLOADS = {
    "257/62": "exponential:257,62",
    "257/447": "exponential:257,447",
    "conversation": "azure-2023-conversation",
    # Mean lengths of Azure's code trace, which is not shipped here.
    "code": "lognormal:2048,28,1",
    "long": "lognormal:4096,200,0.5",
}
ENGINES, ITLS_MS, LINKS_GBIT_S = (4, 16), (50.0, 100.0), (25.0, 200.0)
OVER_AGGREGATED, OVER_MEAN, OVER_FIXED = 1.0, 1.25, 0.95
LEAST = 1e-3  # requests/s, of an arm that holds no rate


def cases_of(
    engines: Sequence[int],
    workloads: Sequence[str],
    itls_ms: Sequence[float],
    links_gbit_s: Sequence[float],
) -> list[PdCase]:
    """Each combination."""
    return [
        PdCase(n, WORKLOADS[name], itl_ms, link)
        for n in engines
        for name in workloads
        for itl_ms in itls_ms
        for link in links_gbit_s
    ]  # fmt: skip


def name_of(case: PdCase) -> str:
    """The name of a case in tables."""
    word = next(name for name, spec in WORKLOADS.items() if spec == case.workload)
    return f"{word}, {case.engines} engines, {case.itl_ms:g} ms, {case.link_gbit_s:g} Gbit/s"


def arms_of(case: PdCase, seed: int, fixed: int) -> list[str]:
    """The arms of a case.

    Args:
        fixed: number of fixed ratios, the best by the closed form; 0: all.
    """
    bounds = fluid_splits(case, seed, direct=False)[1:]
    best = sorted(bounds, key=lambda one: -one.per_s)[: fixed or None]
    ratios = [f"{one.prefill}:{case.engines - one.prefill}" for one in best]
    return [AGGREGATED, AUTO, *ratios]


def without_link(task: Task) -> Task:
    """The task with one link for all, if it has no KV transfers."""
    if task.arm != AGGREGATED:
        return task
    return replace(task, case=replace(task.case, link_gbit_s=LINKS_GBIT_S[0]))


def figures(found: Mapping[Task, float]) -> list[Row]:
    """``auto`` over aggregated, and over the best fixed ratio, for each case; and their means."""
    made: list[Row] = []
    over: dict[float, list[float]] = {}
    for case, per_s in by_case(found).items():
        auto = max(per_s[AUTO], LEAST)
        ratio = auto / max(per_s[AGGREGATED], LEAST)
        over.setdefault(case.itl_ms, []).append(ratio)
        made.append(_row(case, "aggregated", "over aggregated", ratio, OVER_AGGREGATED))
        if ratios := [arm for arm in per_s if ":" in arm]:
            best = max(ratios, key=lambda arm: per_s[arm])
            what = f"over the best fixed ratio ({best})"
            made.append(_row(case, "fixed", what, auto / max(per_s[best], LEAST), OVER_FIXED))
    for itl_ms, ratios_of in sorted(over.items()):
        made.append(
            Row(
                f"pd_mean_{itl_ms:g}ms",
                f"over aggregated, geometric mean of {len(ratios_of)} cases at {itl_ms:g} ms",
                "ratio",
                exactly(geometric_mean(ratios_of)),
                at_least=OVER_MEAN if itl_ms == ITLS_MS[0] else None,
            )
        )
    return made


def _row(case: PdCase, kind: str, what: str, value: float, least: float) -> Row:
    name = name_of(case)
    word = name.replace(" engines", "").replace(", ", "_").replace(" ", "").replace("/", "-")
    return Row(f"pd_{kind}_{word}", f"{name}: {what}", "ratio", exactly(value), at_least=least)


def by_case(found: Mapping[Task, float]) -> dict[PdCase, dict[str, float]]:
    """Requests/s of an engine, by case and arm."""
    cases: dict[PdCase, dict[str, float]] = {}
    for task, per_s in found.items():
        cases.setdefault(task.case, {})[task.arm] = per_s
    return cases


def table(found: Mapping[Task, float]) -> str:
    """Requests/s of an engine, by arm."""
    lines = []
    for case, per_s in by_case(found).items():
        rest = [f"{arm} {shown(value)}" for arm, value in per_s.items() if ":" in arm]
        lines.append((name_of(case), shown(per_s[AGGREGATED]), shown(per_s[AUTO]), "; ".join(rest)))
    return markdown_table(("case", "aggregated", "auto", "fixed, prefill:decode"), lines)
