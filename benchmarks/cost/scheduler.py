"""Scheduler overhead per step: ``make bench-scheduler``.

The real scheduler and KV manager run in this process without a model. Overhead is all that
``DynamicBatchScheduler`` adds to vLLM's scheduler: its methods without vLLM's inside them, and its
hooks inside vLLM's. ``step_delay`` is all overhead that delays a step: with the sync before it, or
with the law inline if there is no controller. Times are CPU time of this thread, so other processes
do not count.
"""

import gc
import statistics
from collections.abc import Iterable

import numpy as np
from tqdm import tqdm

from benchmarks.cost.full_batch import SETTINGS, overhead_full_us, step_delay_us
from benchmarks.report.rows import Printed

SIZES = (16, 256, 1024)
FULL_TARGETS_US = 60.0, 150.0  # with prompts in every step, at 256 running: median and p99
DELAY_TARGET_US = 200.0  # p99 at 256 running
STEPS = 1000


def progress(steps: int, what: str) -> Iterable[int]:
    """Count the steps, with a progress bar."""
    return tqdm(range(steps), desc=what, leave=False, mininterval=0.5)


def main() -> None:
    out = Printed()
    gc.freeze()  # as EngineCore does once it has started
    for name, setting in SETTINGS.items():
        overhead = overhead_full_us(setting, 256, progress(STEPS, name))
        figures = {"median": statistics.median(overhead), "p99": float(np.percentile(overhead, 99))}
        for (figure, value), wanted in zip(figures.items(), FULL_TARGETS_US, strict=True):
            out.row(f"overhead_full_{name}_{figure}_us_256", value, "us", wanted)
    for name, leased in (("leased", True), ("inline", False)):
        for running in SIZES:
            steps = progress(STEPS // 2, f"{name}, {running}")
            delays = step_delay_us(running, steps, leased=leased)
            target = DELAY_TARGET_US if running == 256 else None
            out.row(f"step_delay_{name}_median_us_{running}", statistics.median(delays), "us")
            out.row(
                f"step_delay_{name}_p99_us_{running}",
                float(np.percentile(delays, 99)),
                "us",
                target,
            )
    out.end("scheduler")


if __name__ == "__main__":
    main()
