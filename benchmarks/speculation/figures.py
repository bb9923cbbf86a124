"""The rows of ``python -m benchmarks speculation``: the table beside the best fixed number."""

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, exactly, shown
from benchmarks.speculation.measure import KNOWN, OFF, TABLE, TTFT_MS, Case, DayTask, Task

NEVER_BELOW, OVER_A_DAY = 0.98, 1.15
LATE, LEAST = 0.01, 1e-3
NONE = "none"


def figures(found: Mapping[Task, tuple[float, float]]) -> list[Row]:
    """Capacity and time per token at low load, over the better of off and the best fixed."""
    made: list[Row] = []
    for case, of in by_case(found).items():
        rest = {arm: values for arm, values in of.items() if arm != TABLE}
        most = max(rest, key=lambda arm: rest[arm][0])
        soonest = min(rest, key=lambda arm: rest[arm][1])
        per_s, tpot_ms = of[TABLE]
        name, word = _name(case), _name(case).replace(", ", "_").replace(" ", "")
        for kind, what, value in (
            ("capacity", f"capacity over the best of all fixed ({most})",
             per_s / max(rest[most][0], LEAST)),
            ("low", f"tokens/s of a request at low load over the best fixed ({soonest})",
             rest[soonest][1] / tpot_ms),
            ("low_of_most", f"the same over the fixed one of the highest capacity ({most})",
             rest[most][1] / tpot_ms),
        ):  # fmt: skip
            least = None if kind == "low_of_most" else NEVER_BELOW
            row = Row(f"spec_{kind}_{word}", f"{name}: {what}", "ratio", exactly(value))
            made.append(replace(row, at_least=least))
    return made


def rows_of_days(found: Mapping[DayTask, tuple[float, float, float]]) -> list[Row]:
    """Tokens/s of a request over a day: the table over the best fixed that holds the SLA."""
    made: list[Row] = []
    for acceptances, of in by_day(found).items():
        day = " then ".join(f"{one:g}" for one in acceptances)
        word = "_".join(f"{one:g}" for one in acceptances)
        held = {arm: got for arm, got in of.items() if arm not in (TABLE, KNOWN) and holds(got)}
        if held:
            best = min(held, key=lambda arm: held[arm][0])
            what = f"a day, acceptance {day}: tokens/s of a request over the best fixed"
            value = held[best][0] / of[TABLE][0] if holds(of[TABLE]) else 0.0
            row = Row(f"spec_day_{word}", f"{what} ({best})", "ratio", exactly(value))
            made.append(replace(row, at_least=OVER_A_DAY))
        if KNOWN in of:
            what = f"a day, acceptance {day}: tables of the acceptance of now over the"
            value = of[TABLE][0] / of[KNOWN][0]
            made.append(Row(f"spec_known_{word}", f"{what} one table", "ratio", exactly(value)))
    return made


def holds(got: tuple[float, float, float]) -> bool:
    """Whether a day was inside the SLA."""
    return got[1] <= LATE and got[2] <= TTFT_MS / 1000


def capacity_table(found: Mapping[Task, tuple[float, float]]) -> str:
    """Requests/s, and ms per token at low load, by arm; empty without rows."""
    lines = []
    arms = list(dict.fromkeys(task.arm for task in found))
    for case, of in by_case(found).items():
        cells = [f"{shown(of[a][0])}; {of[a][1]:.1f}" if a in of else NONE for a in arms]
        lines.append((_name(case), *cells))
    return markdown_table(("requests/s; ms a token at low load", *arms), lines) if lines else ""


def day_table(found: Mapping[DayTask, tuple[float, float, float]]) -> str:
    """Ms per token, late deliveries and p99 of TTFT, by arm; empty without rows."""
    lines = []
    arms = list(dict.fromkeys(task.arm for task in found))
    for acceptances, of in by_day(found).items():
        day = " then ".join(f"{one:g}" for one in acceptances)
        cells = [
            f"{of[a][0]:.1f}; {of[a][1]:.2%}; {of[a][2]:.2f}" if a in of else NONE for a in arms
        ]
        lines.append((day, *cells))
    head = "day: ms a token; late; p99 TTFT, s"
    return markdown_table((head, *arms), lines) if lines else ""


def by_case(
    found: Mapping[Task, tuple[float, float]],
) -> dict[Case, dict[str, tuple[float, float]]]:
    """By row and arm; without drafts acceptance does not matter, and is measured once."""
    off = {task.case.profile: got for task, got in found.items() if task.arm == OFF}
    rows: dict[Case, dict[str, tuple[float, float]]] = {}
    for task, got in found.items():
        if task.arm != OFF:
            case = task.case
            rows.setdefault(case, {OFF: off[case.profile]})[task.arm] = got
    return rows


def by_day(
    found: Mapping[DayTask, tuple[float, float, float]],
) -> dict[tuple[float, ...], dict[str, tuple[float, float, float]]]:
    """By day and arm."""
    rows: dict[tuple[float, ...], dict[str, tuple[float, float, float]]] = {}
    for task, got in found.items():
        rows.setdefault(task.acceptances, {})[task.arm] = got
    return rows


def _name(case: Case) -> str:
    return f"{case.profile}, {case.acceptance:g}"
