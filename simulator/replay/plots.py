"""``--plot``: each policy over time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from controller.errors import ConfigError
from simulator.virtual.trace import Trace
from simulator.workloads.lengths import Floats

BINS = 200  # of time, a pixel or two each
WIDTH_IN, ROW_IN = 10, 2.2


def figure(rows: int, path: Path) -> tuple[Any, Any]:
    """A figure with this many rows that share a time axis, and its axes.

    Raises:
        ConfigError: matplotlib is not installed, or cannot write such a file.
    """
    try:
        import matplotlib.figure
    except ImportError:
        raise ConfigError(
            [f"{path}: plots need matplotlib; install Brimful with its `plot` extra"]
        ) from None
    drawn = matplotlib.figure.Figure(figsize=(WIDTH_IN, ROW_IN * rows), layout="constrained")
    axes = drawn.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    suffix, allowed = path.suffix[1:], sorted(drawn.canvas.get_supported_filetypes())
    if suffix not in allowed:
        raise ConfigError([f"{path}: .{suffix} is not allowed: {', '.join(allowed)}"])
    return drawn, axes


def save(drawn: Any, path: Path) -> None:
    """Write a figure.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        drawn.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be written: {error.strerror}"]) from None


def plot(traces: Sequence[tuple[str, Trace]], itl_ms: float | None, path: Path) -> None:
    """Cap, running requests, KV use and time between tokens over time, a colour per policy."""
    drawn, (caps, running, kv, itl) = figure(4, path)
    for index, (policy, trace) in enumerate(traces):
        colour = f"C{index % 10}"
        end_s = trace.column("end_s")
        caps.plot(end_s, trace.column("cap"), colour, drawstyle="steps-post", label=policy)
        running.plot(end_s, trace.column("running"), colour, linewidth=0.8)
        kv.plot(end_s, trace.column("kv_used_tokens") / trace.kv_tokens * 100, colour, lw=0.8)
        times_s, p50_ms, p99_ms = itl_over_time(trace)
        itl.plot(times_s, p50_ms, colour, linewidth=0.8)
        itl.plot(times_s, p99_ms, colour, linewidth=0.8, linestyle=":")
    if itl_ms is not None:
        itl.axhline(itl_ms, color="black", linewidth=0.8, linestyle="--")
    for axis, label in (
        (caps, "cap, requests"),
        (running, "running, requests"),
        (kv, "KV memory used, %"),
        (itl, "time between tokens, ms\n(p50, dotted p99)"),
    ):
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    itl.set_xlabel("time, s")
    caps.legend(fontsize="small")
    save(drawn, path)


def itl_over_time(trace: Trace) -> tuple[Floats, Floats, Floats]:
    """Middle (s), p50 and p99 (ms) of the gaps that ended in each of ``BINS`` equal intervals."""
    gaps = trace.gaps
    edges = np.linspace(0.0, trace.end_s, BINS + 1)
    order = np.argsort(gaps.end_s, kind="stable")
    cuts = np.searchsorted(gaps.end_s[order], edges[1:-1])
    parts = [
        (middle, *np.percentile(part, (50, 99)) * 1000)
        for middle, part in zip(
            (edges[:-1] + edges[1:]) / 2, np.split(gaps.length_s[order], cuts), strict=True
        )
        if len(part)
    ]
    columns = np.array(parts, dtype=float).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]
