"""Whether a replica's report is possible."""

import math
from typing import Any

import numpy as np

from controller.errors import ReportError
from controller.models.arrays import Floats
from controller.records import ReplicaReport, to_wire


def check_report(report: ReplicaReport) -> None:
    """Refuse an impossible report.

    Raises:
        ReportError: naming the first number that is negative, NaN or infinite.
    """
    wire = to_wire(report)
    del wire["memory"], wire["slos"]  # the policy's own; infinite without a promise
    _check_numbers(wire, "report")
    tables = ("batch", report.batch_table), ("queue", report.queue_table), ("rows", _rows(report))
    for name, table in tables:
        if not np.isfinite(table).all() or (table < 0).any():
            wrong = table[~(np.isfinite(table) & (table >= 0))].flat[0]
            raise ReportError(f"report.{name}: {wrong} is not allowed: a finite number from 0")


def _rows(report: ReplicaReport) -> Floats:
    return np.frombuffer(report.rows.table)


def _all_fine(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether all are finite numbers from 0; faster than a loop over hundreds of bins."""
    try:
        return not values or (math.isfinite(sum(values)) and min(values) >= 0)
    except TypeError:  # not numbers, or not only
        return False


def _check_numbers(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_numbers(inner, f"{place}.{key}")
    elif isinstance(value, list | tuple) and not _all_fine(value):
        for index, inner in enumerate(value):
            _check_numbers(inner, f"{place}[{index}]")
    elif isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
        raise ReportError(f"{place}: {value!r} is not allowed: a finite number from 0")
