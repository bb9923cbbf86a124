"""What this machine is fit for, and how long a client has waited for one of its cores."""

import time
from pathlib import Path
from typing import Any

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


class Waited:
    """How much of the time since it was made this thread, the client's, has waited for a core."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), client_wait_s()

    def frac(self) -> float | None:
        """None: the system does not say."""
        (began_s, before_s), after_s = self._begin, client_wait_s()
        if before_s is None or after_s is None:
            return None
        return (after_s - before_s) / (time.perf_counter() - began_s)


def client_wait_s() -> float | None:
    """How long this thread has waited for a core, seconds; None if the system does not say."""
    try:
        return int(SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None
