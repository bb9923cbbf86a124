"""Processes that a test starts: whatever happens, none is left, and with them go their ports."""

import contextlib
import signal
import uuid
from collections.abc import Iterator

import psutil

from serve_app.apply.cluster import ClusterError

MARK = "BRIMFUL_TEST_RUN"  # in the environment of all that a test starts
END_S = 60


class Started:
    """Those with ``environment``, and all that they started."""

    def __init__(self) -> None:
        self.environment = {MARK: uuid.uuid4().hex}

    def left(self) -> list[psutil.Process]:
        """Those that run."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def end(self) -> None:
        """Kill those that run; returns when they are gone."""
        for process in (left := self.left()):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, END_S)

    def _is_ours(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return process.environ().get(MARK) == self.environment[MARK] and (
                process.status() != psutil.STATUS_ZOMBIE
            )
        return False


@contextlib.contextmanager
def none_left() -> Iterator[Started]:
    """What is started in a ``with`` block with its environment is ended after it."""
    started = Started()
    try:
        yield started
    finally:
        started.end()


def heed_ctrl_c() -> None:
    """``preexec_fn``: a script's shell has what it runs in the background ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def running_clusters() -> str:
    """A line for each Ray cluster of this machine."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "gcs_server":
                found.append(f"process {process.pid}: {' '.join(process.cmdline())}")
    return "\n".join(found)


@contextlib.contextmanager
def naming(clusters: str) -> Iterator[None]:
    """A ``ClusterError`` of a ``with`` block names those that ran before: they may hold ports."""
    try:
        yield
    except ClusterError as error:
        if clusters:
            error.add_note(f"These Ray clusters ran before:\n{clusters}")
        raise
