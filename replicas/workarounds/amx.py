"""Permission for a process to use AMX, on processors that have it.

Linux lets a process use AMX's tiles after a request (arch_prctl, ARCH_REQ_XCOMP_PERM), and ends it
with SIGILL otherwise. vLLM 0.29's attention on CPU uses the tiles for bfloat16 without a request.
It works if a matrix product made the request before, but a small model's products do not. The
process is the worker's (``cpu_workers``).
"""

import torch


def permit() -> None:
    """Ask for AMX; does nothing if the processor has none, or the system does not allow it."""
    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()
