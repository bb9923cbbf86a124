"""Memory that this machine has left."""

from pathlib import Path

import psutil

MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container: bytes, or "max"


def free_memory_bytes(limit: Path = MEMORY_LIMIT) -> int:
    """Memory for new processes: at most the free memory, and the container's limit."""
    available: int = psutil.virtual_memory().available
    try:
        return min(available, int(limit.read_text()))
    except (OSError, ValueError):
        return available
