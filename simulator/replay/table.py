"""The table of ``brimful replay``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.config import Sla
from serve_app.tables import console_for, new_table
from simulator.replay.measure import COLD_S, Summary


@dataclass(frozen=True, slots=True)
class View:
    """Decides which columns are shown.

    Args:
        wide: all columns; otherwise those that fit 80 characters.
        searched: whether capacities were searched.
        stalled: whether some tokens stalled, and no capacity was searched.
        unfinished: whether some requests did not finish.
    """

    sla: Sla
    wide: bool
    searched: bool
    stalled: bool
    unfinished: bool

    @property
    def with_sla(self) -> bool:
        return self.sla.itl_ms is not None or self.sla.ttft_ms is not None

    @property
    def with_itl(self) -> bool:
        return self.sla.itl_ms is not None


# Header, whether it is shown, and a policy's cell.
COLUMNS: tuple[tuple[str, Callable[[View], bool], Callable[[Summary], str]], ...] = (
    ("capacity\n/s", lambda v: v.searched, lambda s: _number(s.capacity_per_s, 2)),
    ("finished", lambda v: v.wide, lambda s: f"{s.finished}/{s.requests}"),
    (
        "un-\nfinished",
        lambda v: v.unfinished and not v.wide,
        lambda s: str(s.requests - s.finished),
    ),
    ("tokens\n/s", lambda v: True, lambda s: _number(s.output_tokens_per_s, 0)),
    (
        "running\nmean",
        lambda v: v.wide or not (v.searched or v.stalled),
        lambda s: _number(s.mean_running, 1),
    ),
    ("pre-\nempted", lambda v: True, lambda s: str(s.preemptions)),
    ("KV\npeak", lambda v: v.wide, lambda s: _percent(s.kv_peak_frac)),
    ("ITL ms\np50", lambda v: v.wide, lambda s: _number(s.itl_ms.p50, 1)),
    ("ITL ms\np99", lambda v: True, lambda s: _number(s.itl_ms.p99, 1)),
    ("ITL ms\np99.9", lambda v: v.wide, lambda s: _number(s.itl_ms.p99_9, 1)),
    ("longest\ngap s", lambda v: v.wide, lambda s: _number(_seconds(s.longest_gap_ms), 2)),
    ("stalls", lambda v: v.wide or v.stalled, lambda s: _number(s.stalls, 0)),
    ("TPOT ms\np99", lambda v: v.wide, lambda s: _number(s.tpot_ms.p99, 1)),
    ("TTFT ms\np50", lambda v: v.wide, lambda s: _number(s.ttft_ms.p50, 1)),
    ("TTFT ms\np99", lambda v: True, lambda s: _number(s.ttft_ms.p99, 1)),
    (
        "E2E s\nmean / p99",
        lambda v: v.wide,
        lambda s: _pair(_number, _seconds(s.e2e_ms.mean), _seconds(s.e2e_ms.p99), 1),
    ),
    (
        "delay ms\np50 / p90",
        lambda v: v.wide,
        lambda s: _pair(_number, s.scheduling_delay_ms.p50, s.scheduling_delay_ms.p90, 0),
    ),
    (
        f"late gaps\nto {COLD_S:g} s / after",
        lambda v: v.wide and v.with_itl,
        lambda s: _pair(_percent, s.late_share_cold, s.late_share_after, 2),
    ),
    ("requests\nin SLA", lambda v: v.with_sla, lambda s: _percent(s.sla_attainment)),
    (
        "J s",
        lambda v: v.with_itl and (v.wide or not v.searched),
        lambda s: _number(s.j, 2 if (s.j or 0.0) < 100 else 0),
    ),
    ("goodput\n/s", lambda v: v.wide and v.with_sla, lambda s: _number(s.goodput_per_s, 2)),
    (
        "model\nerror",
        lambda v: v.wide,
        lambda s: "-" if s.step_model_mape is None else f"{s.step_model_mape:.2f}%",
    ),
)


def print_table(summaries: Sequence[Summary], sla: Sla, *, wide: bool) -> None:
    """Print a line per policy to standard output.

    Args:
        wide: all columns; otherwise those that fit 80 characters.
    """
    searched = any(s.capacity_per_s is not None for s in summaries)
    stalled = any(s.stalls for s in summaries) and not searched
    unfinished = any(s.finished < s.requests for s in summaries)
    view = View(sla, wide, searched, stalled, unfinished)
    columns = [(header, cell) for header, shown, cell in COLUMNS if shown(view)]
    table = new_table(("policy",), [header for header, _ in columns])
    if view.with_sla:
        table.title = _title(sla)
        table.caption = _counted(sla)
    for summary in summaries:
        table.add_row(summary.policy, *(cell(summary) for _, cell in columns))
    console_for(table, wide=wide).print(table)


def _title(sla: Sla) -> str:
    parts = [
        f"{name} p{sla.percentile:g} <= {limit:g} ms"
        for name, limit in (("ITL", sla.itl_ms), ("TTFT", sla.ttft_ms))
        if limit is not None
    ]
    return ", ".join(parts)


def _counted(sla: Sla) -> str:
    """The caption for "requests in SLA": requests are counted, not their gaps."""
    parts = []
    if sla.itl_ms is not None:
        parts.append(f"{sla.percentile:g}% of its own gaps in time by {sla.itl_ms:g} ms")
    if sla.ttft_ms is not None:
        parts.append(f"its first token within {sla.ttft_ms:g} ms")
    return f"A request is in SLA with {' and '.join(parts)}."


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(frac: float | None, digits: int = 1) -> str:
    return "-" if frac is None else f"{frac:.{digits}%}"


def _pair(
    shown: Callable[[float | None, int], str], one: float | None, other: float | None, digits: int
) -> str:
    return f"{shown(one, digits)} / {shown(other, digits)}"


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000
