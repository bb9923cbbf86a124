"""The table of ``brimful replay``."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Spread, Summary
from controller.config import Sla


def print_table(summaries: Sequence[Summary], sla: Sla) -> None:
    """A line per policy, on standard output."""
    with_sla = sla.itl_ms is not None or sla.ttft_ms is not None
    searched = any(s.capacity_per_s is not None for s in summaries)
    table = Table(title=_title(sla) if with_sla else None)
    table.add_column("policy", overflow="fold")
    headers = ["capacity /s"] if searched else []
    headers += ["finished", "tokens/s", "running", "preempted", "KV peak"]
    headers += ["ITL p50/p99 ms", "TPOT p99 ms", "TTFT p50/p99 ms", "delay p50 ms"]
    headers += ["in SLA", "goodput /s"] if with_sla else []
    for header in (*headers, "model error"):
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
            _number(summary.scheduling_delay_ms.p50, 0),
        ]
        if with_sla:
            cells += [_percent(summary.sla_attainment), _number(summary.goodput_per_s, 2)]
        mape = summary.step_model_mape
        table.add_row(summary.policy, *cells, "-" if mape is None else f"{mape:.2f}%")
    console = Console()
    # Piped, there is no terminal whose width could cut the columns.
    console.print(table, width=None if console.is_terminal else 200)


def _title(sla: Sla) -> str:
    parts = [
        f"{name} p{sla.percentile:g} <= {limit:g} ms"
        for name, limit in (("ITL", sla.itl_ms), ("TTFT", sla.ttft_ms))
        if limit is not None
    ]
    return ", ".join(parts)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(frac: float | None) -> str:
    return "-" if frac is None else f"{frac:.1%}"


def _pair(spread: Spread) -> str:
    return f"{_number(spread.p50, 1)} / {_number(spread.p99, 1)}"
