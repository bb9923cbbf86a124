"""Whether a replica's report can be true."""

import math
from typing import Any

from controller.errors import ReportError
from controller.records import ReplicaReport, to_wire


def check_report(report: ReplicaReport) -> None:
    """Refuse a report that cannot be true.

    Raises:
        ReportError: naming the first number that is negative, NaN or infinite.
    """
    _check_numbers(to_wire(report), "report")


def _all_fine(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether all are finite numbers from 0; a loop over hundreds of bins would take longer."""
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
