"""The machine, model and versions of recorded steps, in words."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

from controller.version import VERSION
from replicas.engine.settings import parse_settings

CPUINFO = Path("/proc/cpuinfo")
# CPU features that decide how fast vLLM and PyTorch multiply matrices.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "bf16", "sve", "asimd")


def engine_facts(vllm_config: Any, model: str) -> dict[str, Any]:
    """``machine``, ``model`` and ``versions`` of an engine of this process or its child.

    Args:
        model: its name; the dtype is added.
    """
    dtype = str(vllm_config.model_config.dtype).removeprefix("torch.")
    accelerator = _accelerator(vllm_config)
    return {
        "machine": f"{accelerator}; {cpu()}" if accelerator else cpu(),
        "model": f"{model}, {dtype}",
        "versions": versions(),
    }


def cpu(cpuinfo: Path = CPUINFO) -> str:
    """This machine's processor: name, cores, and its part of FEATURES."""
    try:
        text = cpuinfo.read_text()
    except OSError:  # not Linux
        text = ""
    first, _, _ = text.partition("\n\n")  # of the identical processors
    pairs = (line.partition(":") for line in first.splitlines())
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    name = fields.get("model name") or platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = "1 core" if cores == 1 else f"{cores} cores"
    return ", ".join((name, count, *(flag for flag in FEATURES if flag in flags)))


def versions() -> dict[str, str]:
    """Versions of Python and Brimful, and of Ray, PyTorch and vLLM if they are loaded."""
    known = {"brimful": VERSION, "python": platform.python_version()}
    for name in ("ray", "torch", "vllm"):
        if name in sys.modules:
            known[name] = str(sys.modules[name].__version__)
    return known


def _accelerator(vllm_config: Any) -> str | None:
    """None if the CPU computes."""
    if emulate := parse_settings(vllm_config.additional_config).emulate:
        return f"emulated {emulate.profile}, steps {emulate.time_scale:g} times as long"
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return None
    count = vllm_config.parallel_config.world_size
    return f"{count} x {current_platform.get_device_name()}"
