"""The demo as a picture: cap, prompt chunk and ITL over time, with the switch marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from serve_app.demo.report import Floats, Phase, Sample
from simulator.replay.plots import figure, save

BIN_S = 0.5  # of the percentiles over time


@dataclass(frozen=True, slots=True)
class Binned:
    """Middle of each time bin that holds a value, seconds, and percentiles of its values."""

    middle_s: Floats
    p50: Floats
    p99: Floats


def binned(at_s: Floats, values: Floats, bin_s: float = BIN_S) -> Binned:
    """Percentiles of the values of each bin of time."""
    numbers = np.floor(at_s / bin_s)
    rows = [
        ((number + 0.5) * bin_s, *np.percentile(values[numbers == number], (50, 99)))
        for number in np.unique(numbers)
    ]
    columns = np.array(rows, dtype=float).reshape(-1, 3).T
    return Binned(columns[0], columns[1], columns[2])


def applied(samples: Sequence[Sample]) -> tuple[list[float], list[int], list[int]]:
    """Times, and the limits of the engine then: running requests, prompt tokens of a step."""
    times, caps, chunks = [], [], []
    for sample in samples:
        report, engine = sample.report, sample.report.engine
        budget = report.token_budget if report.enforced else engine.max_num_batched_tokens
        times.append(sample.at_s)
        caps.append(sample.limits.max_running if report.enforced else engine.max_num_seqs)
        chunks.append(max(budget - report.decoding, 0))
    return times, caps, chunks


def draw(phases: Sequence[Phase], sla_ms: float, path: Path) -> None:
    """Write the picture.

    Args:
        phases: in order of time.

    Raises:
        ConfigError: matplotlib is not installed, or the file cannot be written.
    """
    drawn, (cap, chunk, itl) = figure(3, path)
    for number, replica in enumerate(sorted({r for p in phases for r in p.samples})):
        samples = [sample for phase in phases for sample in phase.samples.get(replica, ())]
        times, caps, chunks = applied(samples)
        style: dict[str, Any] = {"color": f"C{number}", "drawstyle": "steps-post", "lw": 1.2}
        cap.plot(times, caps, label=f"replica {replica[-5:]}", **style)
        chunk.plot(times, chunks, **style)
    for phase in phases:
        seen = binned(*phase.gap_ends())
        last = phase is phases[-1]
        itl.plot(seen.middle_s, seen.p99 * 1000, "C3", lw=1.2, label="p99" if last else None)
        itl.plot(seen.middle_s, seen.p50 * 1000, "C2", lw=1.2, label="p50" if last else None)
    itl.axhline(sla_ms, color="black", lw=0.8, ls="--", label=f"SLA, {sla_ms:g} ms")
    cap.set_ylabel("cap,\nrunning requests")
    chunk.set_ylabel("prompt tokens\na step may take")
    itl.set_ylabel(f"ITL at the client,\nms (of {BIN_S:g} s)")
    for axis in (chunk, itl):
        axis.set_yscale("log")
        axis.set_ylim(bottom=1)
    cap.set_ylim(bottom=0)
    _mark(phases, (cap, chunk, itl))
    itl.set_xlabel("time since the first request, s")
    cap.legend(fontsize="small", loc="lower left")
    itl.legend(fontsize="small", loc="upper right")
    save(drawn, path)


def _mark(phases: Sequence[Phase], axes: Sequence[Any]) -> None:
    for phase in phases:
        middle_s = (phase.begin_s + phase.end_s) / 2
        axes[0].annotate(
            phase.name,
            (middle_s, 1.02),
            xycoords=("data", "axes fraction"),
            ha="center",
            fontsize="medium",
        )
    for axis in axes:
        axis.grid(alpha=0.3)
        axis.set_xlim(left=0)
        for before, after in pairwise(phases):
            axis.axvline((before.end_s + after.begin_s) / 2, color="black", lw=1.2)
