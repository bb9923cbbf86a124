"""Permission for a process to use AMX, on processors that have it.

Linux lets a process use AMX's tiles once it has asked (arch_prctl, ARCH_REQ_XCOMP_PERM) and ends it
with SIGILL otherwise. vLLM 0.29's attention on CPU takes the tiles for bfloat16 without asking; it
works if a matrix product has asked before, and a small model's have not. The process that takes
them is the worker's (``cpu_workers``).
"""

import torch


def permit() -> None:
    """Ask for AMX; does nothing if the processor has none, or the system does not allow it."""
    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()
