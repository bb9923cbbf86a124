"""How much of a start is there already: files in memory, bytecode."""

import contextlib
import os
import sys
from pathlib import Path

STATES = ("no bytecode", "cold", "warm")


def forget_files(folder: Path = Path(sys.prefix)) -> None:
    """Ask the system to drop a folder's files from memory, as after a reboot (POSIX).

    What another process has mapped stays.
    """
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def prepare(state: str, empty: Path) -> dict[str, str]:
    """Bring the machine into a state of ``STATES``.

    no bytecode: as uv leaves an environment; cold: as ``make install`` does, after a reboot; warm:
    as it was left by a start just before.

    Args:
        empty: a folder for the bytecode that the start itself writes where it finds none.

    Returns:
        What its processes need in their environment.
    """
    if state not in STATES:
        raise ValueError(f"{state!r} is not allowed: {', '.join(STATES)}")
    if state != "warm":
        forget_files()
    # Empty is as good as not set, and means that bytecode may be written.
    environment = {"PYTHONDONTWRITEBYTECODE": ""}
    return environment | ({"PYTHONPYCACHEPREFIX": str(empty)} if state == "no bytecode" else {})
