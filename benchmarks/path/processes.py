"""The processes of a server: what kind each is, what CPU it took; stopping them for a while."""

import contextlib
import os
import signal
import time
from collections.abc import Sequence

import psutil

# The first pattern that a process's command line holds says its kind, as tables name it.
KINDS = (
    ("VLLM::EngineCore", "engine"),
    ("VLLM::Worker", "worker"),
    ("LLMRouter", "router"),
    ("ServeReplica", "server"),
    ("haproxy", "HAProxy"),
    ("ProxyActor", "proxy"),
    ("BatchController", "batch controller"),
    ("ServeController", "Serve controller"),
    ("api_server", "server"),
    ("benchmarks.path.bare", "server"),
)
REST = "Ray"
PATIENCE = 50  # tries to stop them, half a second
STILL = (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Tree:
    """A process with all that it started, as it is now and whoever joins.

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
        """Stop them where they are (SIGSTOP) until ``resume``; they take no CPU meanwhile."""
        tries = 0
        while going := self._going():
            tries += 1
            if tries % PATIENCE == 0:
                # A child that was stopped before it became its program keeps its parent waiting
                # for that (vfork), where no signal reaches it.
                self.resume()
                time.sleep(0.05)
            for process in going:  # one that is not stopped yet may start another
                _send(process.pid, signal.SIGSTOP)
            time.sleep(0.01)

    def resume(self) -> None:
        """Let them go on."""
        for process in self.processes():
            _send(process.pid, signal.SIGCONT)

    def cpu_s(self) -> dict[int, tuple[str, float]]:
        """By process id: its kind, and the CPU seconds that it took so far."""
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                spent = process.cpu_times()
                found[process.pid] = (
                    kind(process.cmdline(), process.name()),
                    (spent.user + spent.system),
                )
        return found


def kind(command: Sequence[str], name: str = "") -> str:
    """What a process is by its command line, in the words of the tables."""
    line = " ".join((*command, name))
    return next((word for pattern, word in KINDS if pattern in line), REST)


def spent_s(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]]
) -> dict[str, float]:
    """CPU seconds by kind between two calls of ``cpu_s``, of processes that live at the second."""
    found: dict[str, float] = {}
    for pid, (word, total_s) in after.items():
        begun_s = before[pid][1] if pid in before else 0.0
        found[word] = found.get(word, 0.0) + total_s - begun_s
    return found


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
