"""A server of which nothing is left: it and what it started end with the block that uses it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

STOP_S = 60.0  # for the server to end by itself, and its engine with it
KILL_S = 5.0  # for the kernel to clear away what it was told to kill
LOOK_S = 0.1


@contextlib.contextmanager
def serving(
    command: Sequence[str], environment: Mapping[str, str], stop_s: float = STOP_S
) -> Iterator["subprocess.Popen[bytes]"]:
    """The server for a ``with`` block, in a session of its own: Ctrl-C is for its caller alone.

    It is asked to end (SIGTERM), and what is still there after ``stop_s`` is killed.
    """
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        try:
            process.terminate()
            _wait(process, stop_s)
        finally:  # also where somebody interrupts a second time
            if _signal(process.pid, signal.SIGKILL):
                _wait(process, KILL_S)


def _wait(process: "subprocess.Popen[bytes]", stop_s: float) -> None:
    """Until neither the process nor one that it started is there, but no longer than that."""
    until_s = time.monotonic() + stop_s
    while time.monotonic() < until_s:
        process.poll()  # or it would stay as a zombie
        if not _signal(process.pid, 0):
            return
        time.sleep(LOOK_S)


def _signal(group: int, number: int) -> bool:
    """Whether there was a process to send it to."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, with all that it has to clear away."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
