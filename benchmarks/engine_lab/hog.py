"""A process that takes its core now and then: ``python -m benchmarks.engine_lab.hog HOG SEED``.

It begins with a line on stdin, and ends when stdin does.
"""

import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Hog:
    """Work and sleep in turn, both exponential.

    Args:
        work_s, sleep_s: means.
        phase_s: on and off for so long in turn, begun in the middle of a phase that is on; None:
            always on.
    """

    work_s: float
    sleep_s: float
    phase_s: float | None = None

    def is_on(self, passed_s: float) -> bool:
        """Whether it works now; else it only sleeps."""
        return self.phase_s is None or int(passed_s / self.phase_s + 0.5) % 2 == 0


@contextmanager
def hog_process(hog: Hog | None, seed: int) -> "Iterator[subprocess.Popen[str] | None]":
    """Its process, on the cores and at the niceness of this one; None: there is none."""
    if hog is None:
        yield None
        return
    command = [sys.executable, "-m", __name__, json.dumps(asdict(hog)), str(seed)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def begin(process: "subprocess.Popen[str]") -> None:
    """Let it begin now."""
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def _take_the_core(hog: Hog, seed: int) -> None:
    rng = random.Random(seed)
    begin_s = time.perf_counter()
    while not _stdin_ends(rng.expovariate(1 / hog.sleep_s)):
        now_s = time.perf_counter()
        until_s = now_s + rng.expovariate(1 / hog.work_s)
        if hog.is_on(now_s - begin_s):
            while time.perf_counter() < until_s:
                pass


def _stdin_ends(within_s: float) -> bool:
    return bool(select.select([sys.stdin], [], [], within_s)[0])


if __name__ == "__main__":
    sys.stdin.readline()
    _take_the_core(Hog(**json.loads(sys.argv[1])), int(sys.argv[2]))
