"""Mixed load for minutes: memory, handles and latency, which have to stay what they were."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from benchmarks.faults.client import Counts, Load, Outcome, count
from benchmarks.faults.faults import RATE_PER_S, STAYS_S, asked_and_gone
from benchmarks.faults.stack import MODEL, URL, Fleet
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly

SAMPLE_S = 10.0
LEAVING_PER_S = 4.0
PARTS = 4  # of the run: the last is compared with the second, the first warms up
TARGET = 1.05  # of memory and handles, last part over second


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes of the cluster at one moment.

    Args:
        at_s: from the load's start.
        rss_mb: resident memory.
        handles: open file descriptors.
    """

    at_s: float
    rss_mb: float
    handles: int


def soak(there: Fleet, seconds: float) -> tuple[list[Sample], list[Outcome]]:
    """A steady load, and clients that leave, for so long."""
    there.wait_whole()

    async def run() -> tuple[list[Sample], list[Outcome]]:
        load = Load(URL, MODEL, RATE_PER_S)
        running = asyncio.create_task(load.run())
        begin_s, samples, leaving = time.perf_counter(), [], set()
        next_s = 0.0
        while (now_s := time.perf_counter() - begin_s) < seconds:
            if now_s >= next_s:
                samples.append(await asyncio.to_thread(sample, there, now_s))
                next_s += SAMPLE_S
            task = asyncio.create_task(asked_and_gone(STAYS_S, stream=len(samples) % 2 == 0))
            leaving.add(task)
            task.add_done_callback(leaving.discard)
            await asyncio.sleep(1 / LEAVING_PER_S)
        load.stop()
        return samples, await running

    return asyncio.run(run())


def sample(there: Fleet, at_s: float) -> Sample:
    """The cluster's processes now."""
    rss_mb, handles = 0.0, 0
    for process in psutil.Process(there.cluster.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            rss_mb += process.memory_info().rss / 1e6
            handles += process.num_fds()
    return Sample(at_s, rss_mb, handles)


def section(samples: Sequence[Sample], outcomes: Sequence[Outcome], seconds: float) -> Section:
    """What grew between the second part of the run and its last."""
    parts = [_part(samples, outcomes, seconds, number) for number in range(PARTS)]
    counts: Counts = count(outcomes)
    bad = counts.sent - counts.ends["whole"]
    rows = (
        Row("soak_rss", "resident memory, last part over second", "",
            exactly(parts[-1][0] / parts[1][0]), at_most=TARGET),
        Row("soak_handles", "open handles, last part over second", "",
            exactly(parts[-1][1] / parts[1][1]), at_most=TARGET),
        Row("soak_ttft_p50", "median time to first token, last part over second", "",
            exactly(parts[-1][2] / parts[1][2])),
        Row("soak_not_whole", "requests that were not answered whole", "", exactly(bad), at_most=0),
    )  # fmt: skip
    table = [
        (f"{number + 1} of {PARTS}", *(f"{value:.0f}" for value in part))
        for number, part in enumerate(parts)
    ]
    text = (
        f"The fleet of `make bench-faults` under {RATE_PER_S:g} requests/s of OpenAI's client and"
        f" {LEAVING_PER_S:g} clients a second that leave after {STAYS_S:g} s, for"
        f" {seconds / 60:g} minutes: {counts.sent} requests. Memory and handles of all processes"
        " of the cluster, Ray's among them; medians of each part."
    )
    head = ("part", "memory, MB", "handles", "TTFT p50, ms", "TTFT p99, ms")
    return Section(
        "Soak", "memory, handles and latency over time", text, rows,
        (markdown_table(head, table),), max_tokens=None,
    )  # fmt: skip


def _part(
    samples: Sequence[Sample], outcomes: Sequence[Outcome], seconds: float, number: int
) -> tuple[float, float, float, float]:
    """Memory, MB; handles; TTFT p50 and p99, ms."""
    low_s, high_s = number * seconds / PARTS, (number + 1) * seconds / PARTS
    here = [one for one in samples if low_s <= one.at_s < high_s]
    waits_s = sorted(o.ttft_s for o in outcomes if low_s <= o.at_s < high_s and o.ttft_s)
    return (
        statistics.median(one.rss_mb for one in here),
        statistics.median(one.handles for one in here),
        1000 * statistics.median(waits_s),
        1000 * waits_s[int(0.99 * len(waits_s))],
    )
