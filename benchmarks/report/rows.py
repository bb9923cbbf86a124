"""Results of a bench's part: rows with targets, and tables."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.report.document import markdown_table
from benchmarks.report.interval import Estimate
from simulator.workloads.max_tokens import SPREAD, MaxTokens, stated


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Args:
        what: a description.
        estimate: the value and its interval over seeds.
        at_least, at_most: the targets; None: none on this side.
    """

    id: str
    what: str
    unit: str
    estimate: Estimate
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the value is inside its targets; None if it has none."""
        if self.at_least is None and self.at_most is None:
            return None
        value = self.estimate.value
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)

    @property
    def target(self) -> str:
        """The targets, for tables; empty if there are none."""
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least:g} to {self.at_most:g}"
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""

    def to_json(self) -> dict[str, Any]:
        """One of the ``rows`` of the JSON line; the target is a number if it has one side."""
        sides = [side for side in (self.at_least, self.at_most) if side is not None]
        target: Any = sides[0] if len(sides) == 1 else (sides or None)
        return {
            "id": self.id,
            "value": _rounded(self.estimate.value),
            "unit": self.unit,
            "target": target,
            "low": _rounded(self.estimate.low),
            "high": _rounded(self.estimate.high),
            "interval": self.estimate.interval,
            "runs": self.estimate.runs,
        }


class Printed:
    """Figures of one run, printed at once; without intervals.

    Attributes:
        rows: for the JSON line.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def row(self, id_: str, value: float, unit: str = "ratio", target: float | None = None) -> None:
        """Add and print a figure."""
        self.rows.append({"id": id_, "value": round(value, 4), "unit": unit, "target": target})
        aim = "" if target is None else f"   (target {target:g})"
        print(f"{id_:60} {value:12.4f} {unit}{aim}", flush=True)

    def end(self, bench: str) -> None:
        """Print the last line: one JSON object."""
        print(json.dumps({"bench": bench, "rows": self.rows}), flush=True)


def exactly(value: float) -> Estimate:
    """A figure of one run, or one that has no spread."""
    return Estimate(value, value, value)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


@dataclass(frozen=True, slots=True)
class Section:
    """One part's results.

    Args:
        name: of the part, for ``--only``.
        title: a title for the page.
        text: the method and the definitions of all figures; Markdown.
        rows: the figures.
        tables: the data behind the rows; Markdown.
        max_tokens: rule of the requests; None: no replay.
    """

    name: str
    title: str
    text: str
    rows: tuple[Row, ...]
    tables: tuple[str, ...] = field(default=())
    max_tokens: MaxTokens | None = SPREAD

    def markdown(self, command: str) -> str:
        """The page."""
        text = self.text if self.max_tokens is None else f"{self.text} {stated(self.max_tokens)}"
        parts = [f"# {self.name}: {self.title}", text, rows_table(self.rows), *self.tables]
        return "\n\n".join([*parts, f"Command: `{command}`"])


def rows_table(rows: Sequence[Row]) -> str:
    """The figures with their targets, as a table."""
    verdicts = {True: "met", False: "**missed**", None: ""}
    return markdown_table(
        ("figure", "value", "interval", "target", ""),
        [
            (
                f"{row.what} (`{row.id}`)",
                f"{shown(row.estimate.value)} {row.unit}".strip(),
                interval(row.estimate),
                row.target,
                verdicts[row.met],
            )
            for row in rows
        ],
    )


def interval(estimate: Estimate) -> str:
    """The interval of a figure, with its kind."""
    if estimate.runs == 1:
        return "one run"
    reach = f"{shown(estimate.low)} to {shown(estimate.high)}"
    return f"{reach} ({estimate.interval} of {estimate.runs})"


def shown(value: float) -> str:
    """Four digits."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
