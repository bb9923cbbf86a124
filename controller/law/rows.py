"""Rows of steps: what one engine did step by step, numbered, as the law reads them.

EngineCore writes one row a step and sends the rows that the controller has not seen. The controller
keeps the last ``KEPT`` rows, and the last ``KEPT`` with prompt tokens. A new controller asks for
all rows that the engine still has, so nothing is lost with the old one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from controller.models.arrays import Bools, Floats, Ints
from controller.records import ROW_COLUMNS, PackedRows

KEPT = 800  # a share of 1% has a standard error of a third
STARTS_KEPT = 256  # prompts; one in fifty may be most of the work
DECODES, KV, PREFILL, CONTEXT, TOOK_S = range(ROW_COLUMNS)
Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepRows:
    """Rows of one engine, the oldest first.

    Args:
        numbers: each row's, counted from the engine's start, shape (n,).
        table: shape (n, ROW_COLUMNS + classes): decodes B, their KV tokens K, prompt tokens P,
            prompt tokens x context X, seconds T; then the decodes of each class.
        starts: prompt tokens to compute of the requests that started last, shape (m,).
    """

    numbers: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    table: Floats = field(default_factory=lambda: np.zeros((0, ROW_COLUMNS)))
    starts: Floats = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.numbers)

    def where(self, mask: Bools) -> "StepRows":
        """The rows for which ``mask``, shape (n,), is true."""
        return StepRows(self.numbers[mask], self.table[mask], self.starts)

    def after(self, number: int) -> "StepRows":
        """The rows with a larger number."""
        return self.where(self.numbers > number)

    def of_class(self, index: int) -> Floats:
        """Decodes of one class in each row, shape (n,); rows older than the class have none."""
        column = ROW_COLUMNS + index
        if column >= self.table.shape[1]:
            return np.zeros(len(self))
        decodes: Floats = self.table[:, column]
        return decodes


def pack(first: int, rows: Sequence[Row], starts: Sequence[int]) -> PackedRows:
    """Consecutive rows; a class that appears later is 0 in the rows before."""
    width = max(map(len, rows), default=ROW_COLUMNS)
    table = np.zeros((len(rows), width))
    for index, row in enumerate(rows):
        table[index, : len(row)] = row
    return PackedRows(first, width, table.tobytes(), tuple(starts))


class RowHistory:
    """The rows of one engine as they come with its reports.

    Attributes:
        rows: the rows to keep.
        wanted: the number of the first row that is to be sent next.
    """

    def __init__(self) -> None:
        self.rows = StepRows()
        self.wanted = 0

    def add(self, packed: PackedRows) -> None:
        """Take the rows of a report. Rows that are known already are not counted twice."""
        table = np.frombuffer(packed.table).reshape(-1, packed.columns)
        end = packed.first + len(table)
        if packed.first > self.wanted and len(table) < KEPT:
            return  # rows are missing; the engine sends them with its next report
        if len(table) and end <= self.wanted - KEPT:  # the engine started anew
            self.rows, self.wanted = StepRows(), 0
        new = table[max(self.wanted - packed.first, 0) :]
        marks = np.array(packed.starts, dtype=float).reshape(-1, 2)
        begun = marks[marks[:, 0] >= self.wanted, 1]
        starts = np.concatenate([self.rows.starts, begun])[-STARTS_KEPT:]
        numbers = np.arange(end - len(new), end)
        old = self.rows
        width = max(old.table.shape[1], packed.columns)
        both = np.concatenate([_wide(old.table, width), _wide(new, width)])
        every = np.concatenate([old.numbers, numbers])
        self.rows = StepRows(every, both, starts).where(_kept(both))
        self.wanted = max(self.wanted, end)


def _kept(table: Floats) -> Bools:
    """The last ``KEPT`` rows, and the last ``KEPT`` with prompt tokens."""
    prompts = table[:, PREFILL] > 0
    later = prompts[::-1].cumsum()[::-1]
    kept: Bools = prompts & (later <= KEPT)
    kept[-KEPT:] = True
    return kept


def _wide(table: Floats, width: int) -> Floats:
    more = width - table.shape[1]
    return np.pad(table, ((0, 0), (0, more))) if more else table
