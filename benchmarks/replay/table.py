"""The table of ``brimful replay``."""

from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.replay.measure import COLD_S, Spread, Summary
from controller.config import Sla

WIDEST = 1000


def print_table(summaries: Sequence[Summary], sla: Sla) -> None:
    """A line per policy, on standard output."""
    with_sla = sla.itl_ms is not None or sla.ttft_ms is not None
    searched = any(s.capacity_per_s is not None for s in summaries)
    table = Table(
        title=_title(sla) if with_sla else None, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False
    )
    table.add_column("policy")
    headers = ["capacity\n/s"] if searched else []
    headers += ["finished", "tokens/s", "mean\nrunning", "preempted", "KV\npeak"]
    headers += ["ITL ms\np50 / p99", "TPOT ms\np99", "TTFT ms\np50 / p99", "delay ms\np50 / p90"]
    headers += [f"late gaps\nto {COLD_S:g} s / after"] if sla.itl_ms is not None else []
    headers += ["in SLA", "goodput\n/s"] if with_sla else []
    for header in (*headers, "model\nerror"):
        table.add_column(header, justify="right")
    for summary in summaries:
        cells = [_number(summary.capacity_per_s, 2)] if searched else []
        cells += [
            f"{summary.finished}/{summary.requests}",
            _number(summary.output_tokens_per_s, 0),
            _number(summary.mean_running, 1),
            str(summary.preemptions),
            _percent(summary.kv_peak_frac),
            _pair(summary.itl_ms),
            _number(summary.tpot_ms.p99, 1),
            _pair(summary.ttft_ms),
            _pair(summary.scheduling_delay_ms, "p90", 0),
        ]
        if sla.itl_ms is not None:
            cells.append(
                f"{_percent(summary.late_share_cold, 2)} / {_percent(summary.late_share_after, 2)}"
            )
        if with_sla:
            cells += [_percent(summary.sla_attainment), _number(summary.goodput_per_s, 2)]
        mape = summary.step_model_mape
        table.add_row(summary.policy, *cells, "-" if mape is None else f"{mape:.2f}%")
    # Rich would cut columns to the terminal's width; a number cut in half says nothing.
    wide = Console(width=WIDEST)
    Console(width=wide.measure(table).maximum).print(table)


def _title(sla: Sla) -> str:
    parts = [
        f"{name} p{sla.percentile:g} <= {limit:g} ms"
        for name, limit in (("ITL", sla.itl_ms), ("TTFT", sla.ttft_ms))
        if limit is not None
    ]
    return ", ".join(parts)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(frac: float | None, digits: int = 1) -> str:
    return "-" if frac is None else f"{frac:.{digits}%}"


def _pair(spread: Spread, upper: Literal["p90", "p99"] = "p99", digits: int = 1) -> str:
    return f"{_number(spread.p50, digits)} / {_number(getattr(spread, upper), digits)}"
