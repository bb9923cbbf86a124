"""The processes of a server: their CPU time, and pausing them."""

import contextlib
import os
import signal
import time

import psutil

PATIENCE = 50  # tries to stop them: half a second
STILL = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Tree:
    """A process and all its descendants, later ones included.

    Args:
        root: the process that was started for it.
    """

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)

    def processes(self) -> list[psutil.Process]:
        """All that live, the root first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._root, *self._root.children(recursive=True)]
        return []

    def _going(self) -> list[psutil.Process]:
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() not in STILL:
                    found.append(process)
        return found

    def stop(self) -> None:
        """Stop them (SIGSTOP) until ``resume``; they take no CPU meanwhile."""
        tries = 0
        while going := self._going():
            tries += 1
            if tries % PATIENCE == 0:
                # A child that is stopped between vfork and exec blocks its parent, which no signal
                # reaches.
                self.resume()
                time.sleep(0.05)
            for process in going:  # a running one may start another
                _send(process.pid, signal.SIGSTOP)
            time.sleep(0.01)

    def resume(self) -> None:
        """Resume them."""
        for process in self.processes():
            _send(process.pid, signal.SIGCONT)

    def cpu_s(self) -> dict[int, float]:
        """CPU seconds that each process took so far, by process id."""
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                spent = process.cpu_times()
                found[process.pid] = spent.user + spent.system
        return found


def spent_s(before: dict[int, float], after: dict[int, float]) -> float:
    """CPU seconds between two calls of ``cpu_s``, of processes that live at the second."""
    return sum(total_s - before.get(pid, 0.0) for pid, total_s in after.items())


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
