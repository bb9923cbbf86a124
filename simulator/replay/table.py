"""The table of ``brimful replay``."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from controller.config import Sla
from serve_app.tables import console_for, new_table
from simulator.replay.measure import COLD_S, Spread, Summary

Column = tuple[str, Callable[[Summary], str]]


def print_table(summaries: Sequence[Summary], sla: Sla, *, wide: bool) -> None:
    """A line per policy, on standard output.

    Args:
        wide: all columns, however wide; else what fits 80 characters.
    """
    columns = list(_columns(summaries, sla, wide))
    table = new_table(("policy",), [header for header, _ in columns])
    if sla.itl_ms is not None or sla.ttft_ms is not None:
        table.title = _title(sla)
        table.caption = _counted(sla)
    for summary in summaries:
        table.add_row(summary.policy, *(cell(summary) for _, cell in columns))
    console_for(table, wide=wide).print(table)


def _columns(summaries: Sequence[Summary], sla: Sla, wide: bool) -> Iterator[Column]:
    """The headers, and what stands under each for a policy."""
    with_sla = sla.itl_ms is not None or sla.ttft_ms is not None
    searched = any(s.capacity_per_s is not None for s in summaries)
    stalled = any(s.stalls for s in summaries) and not searched
    if searched:
        yield "capacity\n/s", lambda s: _number(s.capacity_per_s, 2)
    if wide:
        yield "finished", lambda s: f"{s.finished}/{s.requests}"
    elif any(s.finished < s.requests for s in summaries):
        yield "un-\nfinished", lambda s: str(s.requests - s.finished)
    yield "tokens\n/s", lambda s: _number(s.output_tokens_per_s, 0)
    if wide or not (searched or stalled):
        yield "running\nmean", lambda s: _number(s.mean_running, 1)
    yield "pre-\nempted", lambda s: str(s.preemptions)
    if wide:
        yield "KV\npeak", lambda s: _percent(s.kv_peak_frac)
        yield "ITL ms\np50", lambda s: _number(s.itl_ms.p50, 1)
    yield "ITL ms\np99", lambda s: _number(s.itl_ms.p99, 1)
    if wide:
        yield "ITL ms\np99.9", lambda s: _number(s.itl_ms.p99_9, 1)
        yield "longest\ngap s", _longest_gap
    if wide or stalled:
        yield "stalls", lambda s: _number(s.stalls, 0)
    if wide:
        yield "TPOT ms\np99", lambda s: _number(s.tpot_ms.p99, 1)
        yield "TTFT ms\np50", lambda s: _number(s.ttft_ms.p50, 1)
    yield "TTFT ms\np99", lambda s: _number(s.ttft_ms.p99, 1)
    if wide:
        yield "E2E s\nmean / p99", _e2e
        yield "delay ms\np50 / p90", lambda s: _pair(s.scheduling_delay_ms, "p90", 0)
        if sla.itl_ms is not None:
            yield f"late gaps\nto {COLD_S:g} s / after", _late_gaps
    if with_sla:
        yield "requests\nin SLA", lambda s: _percent(s.sla_attainment)
    if sla.itl_ms is not None and (wide or not searched):
        yield "J s", lambda s: _number(s.j, 2 if (s.j or 0.0) < 100 else 0)
    if wide and with_sla:
        yield "goodput\n/s", lambda s: _number(s.goodput_per_s, 2)
    if wide:
        yield "model\nerror", _model_error


def _e2e(summary: Summary) -> str:
    mean, p99 = (
        None if ms is None else ms / 1000 for ms in (summary.e2e_ms.mean, summary.e2e_ms.p99)
    )
    return f"{_number(mean, 1)} / {_number(p99, 1)}"


def _late_gaps(summary: Summary) -> str:
    return f"{_percent(summary.late_share_cold, 2)} / {_percent(summary.late_share_after, 2)}"


def _longest_gap(summary: Summary) -> str:
    ms = summary.longest_gap_ms
    return _number(None if ms is None else ms / 1000, 2)


def _model_error(summary: Summary) -> str:
    return "-" if summary.step_model_mape is None else f"{summary.step_model_mape:.2f}%"


def _title(sla: Sla) -> str:
    parts = [
        f"{name} p{sla.percentile:g} <= {limit:g} ms"
        for name, limit in (("ITL", sla.itl_ms), ("TTFT", sla.ttft_ms))
        if limit is not None
    ]
    return ", ".join(parts)


def _counted(sla: Sla) -> str:
    """What stands under "requests in SLA": a request is counted as a whole, not its gaps."""
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


def _pair(spread: Spread, upper: Literal["p90", "p99"] = "p99", digits: int = 1) -> str:
    return f"{_number(spread.p50, digits)} / {_number(getattr(spread, upper), digits)}"
