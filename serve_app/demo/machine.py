"""What else the machine did while something was measured on it, so whether figures mean much."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from serve_app.launch.memory import free_memory_bytes

CPUINFO = Path("/proc/cpuinfo")
SCHEDSTAT = Path("/proc/thread-self/schedstat")  # Linux: ns running, ns waiting for a core, slices
GIB = 2**30
# Ray, Serve and two replicas of the tiny model take 3.3 GiB; this model's weights and a KV memory
# of 24k tokens add 1 GiB to each engine, and the client takes its part.
SMALL_MODEL_GIB = 6.0


def small_model_obstacle(free_bytes: int | None = None, cpuinfo: Path = CPUINFO) -> str | None:
    """Why two engines of the small real model do not run well here; None: they do.

    Args:
        free_bytes: memory that may still be taken; None: as the system says.
    """
    if _lacks_avx512(cpuinfo):
        return "no AVX-512"
    free_gib = (free_memory_bytes() if free_bytes is None else free_bytes) / GIB
    if free_gib < SMALL_MODEL_GIB:
        return f"{free_gib:.1f} GiB of memory free, {SMALL_MODEL_GIB:.1f} needed"
    return None


def suit_processor(engine_kwargs: dict[str, Any], cpuinfo: Path = CPUINFO) -> None:
    """Take float32 instead of bfloat16 on an x86 processor without AVX-512.

    PyTorch multiplies bfloat16 without the processor's help there: a prompt of 1,500 tokens of the
    demo's model takes 2.7 times as long. KV memory stays that for as many tokens.
    """
    if engine_kwargs["dtype"] == "bfloat16" and _lacks_avx512(cpuinfo):
        engine_kwargs["dtype"] = "float32"
        engine_kwargs["kv_cache_memory_bytes"] *= 2


def _lacks_avx512(cpuinfo: Path) -> bool:
    """Whether this is an x86 processor without it."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return "sse2" in flags and "avx512f" not in flags


@dataclass(frozen=True, slots=True)
class Shares:
    """What happened between two moments.

    Args:
        seconds: between them.
        others_cores: cores that programs took which were not ours, on average.
        cores: that there are.
        waited_frac: share of the time in which the client was ready to run and had no core; None
            where the system does not say.
    """

    seconds: float
    others_cores: float
    cores: int
    waited_frac: float | None


class Machine:
    """Counts from the moment it is made.

    Args:
        ours: the processes whose work is ours, with all that they started.
    """

    def __init__(self, ours: list[psutil.Process]) -> None:
        self._ours = ours
        self._begin = self._counts()

    def shares(self) -> Shares:
        """Since it was made; called by the thread that made it, which is the client's."""
        begin, end = self._begin, self._counts()
        seconds = end[0] - begin[0]
        ours_s = sum(end[2].values()) - sum(begin[2].get(pid, 0.0) for pid in end[2])
        others = max((end[1] - begin[1] - ours_s) / seconds, 0.0)
        waited = None
        if begin[3] is not None and end[3] is not None:
            waited = (end[3] - begin[3]) / seconds
        return Shares(seconds, others, os.cpu_count() or 1, waited)

    def _counts(self) -> tuple[float, float, dict[int, float], float | None]:
        """Now, busy CPU seconds of all, of each process of ours, and the client's wait; seconds."""
        times = psutil.cpu_times()
        busy_s = times.user + times.nice + times.system
        return time.perf_counter(), busy_s, _cpu_s(self._ours), client_wait_s()


def _cpu_s(roots: list[psutil.Process]) -> dict[int, float]:
    found = {}
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    spent = process.cpu_times()
                    found[process.pid] = spent.user + spent.system
    return found


def client_wait_s() -> float | None:
    """How long this thread has waited for a core, seconds; None if the system does not say."""
    try:
        return int(SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None
