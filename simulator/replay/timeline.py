"""``--timeline``: which request holds which slot of the batch, under four ways of batching."""

import heapq
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simulator.replay.plots import figure, save
from simulator.virtual.trace import Stay, Trace

Placed = tuple[int, Stay]


def place(stays: Sequence[Stay]) -> list[Placed]:
    """The lowest slot that is free, for each stay in order of its start."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    placed: list[Placed] = []
    for stay in sorted(stays, key=lambda s: (s.start_s, s.request)):
        while taken and taken[0][0] <= stay.start_s:
            heapq.heappush(free, heapq.heappop(taken)[1])
        slot = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (stay.slot_until_s, slot))
        placed.append((slot, stay))
    return placed


def idle_frac(trace: Trace, slots: int) -> float:
    """Share of slots x time in which a slot computes nothing of a request, padding included."""
    busy_s = sum(stay.end_s - stay.start_s for stay in trace.stays)
    return 1 - busy_s / (slots * trace.end_s) if slots and trace.end_s else 0.0


def draw_timeline(rows: Sequence[tuple[str, Trace]], path: Path) -> None:
    """A row per way of batching: slots over time; hatched is padding, white is idle.

    The first token parts prefill (dark) from decode (light).
    """
    drawn, axes = figure(len(rows), path)
    for axis, (title, trace) in zip(axes, rows, strict=True):
        placed = place(trace.stays)
        slots = 1 + max((slot for slot, _ in placed), default=0)
        for slot, stay in placed:
            _draw_stay(axis.barh, slot, stay, trace)
        axis.set_title(
            f"{title}: {trace.end_s:.1f} s, slots idle or padded {idle_frac(trace, slots):.0%}",
            fontsize="medium",
        )
        axis.set_ylabel("slot")
        axis.set_ylim(-0.5, slots - 0.5)
        axis.yaxis.get_major_locator().set_params(integer=True)
    axes[-1].set_xlabel("time, s")
    save(drawn, path)


def _draw_stay(bar: Callable[..., Any], slot: int, stay: Stay, trace: Trace) -> None:
    colour = f"C{stay.request % 10}"
    first_s = trace.outcomes[stay.request].first_token_s
    middle_s = min(max(first_s or stay.end_s, stay.start_s), stay.end_s)
    parts = (
        (stay.start_s, middle_s, {"color": colour}),
        (middle_s, stay.end_s, {"color": colour, "alpha": 0.5}),
        (stay.end_s, stay.slot_until_s, {"color": "white", "hatch": "////", "edgecolor": colour}),
    )
    for start_s, end_s, style in parts:
        if end_s > start_s:
            bar(slot, end_s - start_s, left=start_s, height=0.9, linewidth=0.3, **style)
    if stay.end_s > stay.start_s:
        bar(slot, 0.0, left=stay.start_s, height=0.9, color="black", linewidth=0.3)
