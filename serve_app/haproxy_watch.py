"""A HAProxy that is killed is started again at once, and outlives its manager, until Ray notices.

Ray asks its HAProxy every 10 s whether it is there, believes the third answer, and starts it anew:
half a minute in which no client is served on its node. A small process watches each HAProxy and
takes that time over, with the same configuration but without the admin socket that Ray asks, so
that Ray notices as before. If the manager is killed, Ray's raylet kills its whole process group
(``process_group_cleanup_enabled``), so HAProxy leaves that group, and the watching process ends
it once another has taken its place, with its node, or after a while. Standard library alone.
"""

import contextlib
import ctypes
import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PID, AGAIN_PID = "brimful-haproxy.pid", "brimful-again.pid"
LAST, AGAIN = "brimful-last.cfg", "brimful-again.cfg"
SOCKET = re.compile(r"^( *stats socket )(\S+)", re.M)
APPLICATION = "    use_backend "
LONGEST_S = 90.0  # Ray takes 35 to 40 s
AFTER_MANAGER_S = 20.0  # Ray ends the manager of a HAProxy that it gave up before the next one's
POLL_S = 0.2
PR_SET_PDEATHSIG = 1


def take_over(config: Path, arguments: list[str]) -> list[str]:
    """The arguments of HAProxy, which this process becomes.

    Those that serve in its place, or that a manager before this one left, are told to end. Ray
    starts HAProxy before it knows an application; it goes by the ones that were known until Ray
    names them.
    """
    folder = config.parent
    left = _read_pid(folder / PID)
    (folder / PID).write_text(str(os.getpid()))
    written = config.read_text()
    if APPLICATION in written:
        (folder / LAST).write_text(written)
    again = _read_pid(folder / AGAIN_PID)
    if "-sf" in arguments:  # Ray's manager replaces its own
        return arguments
    (folder / AGAIN_PID).unlink(missing_ok=True)
    # The number of a process that ended may belong to a process that is not ours.
    known = ((left, config), (again, folder / AGAIN))
    serving = [str(pid) for pid, its in known if pid is not None and _runs(pid, its)]
    if not serving:
        return arguments
    if APPLICATION not in written and (folder / LAST).exists():
        config.write_text((folder / LAST).read_text())
    return [*arguments, "-sf", *serving]


def watch(binary: str, config: Path) -> None:
    """Leave a process behind that starts HAProxy again if it is killed.

    This process, which becomes HAProxy, leaves its manager's process group.
    """
    haproxy, manager = os.getpid(), os.getppid()
    if os.fork():
        with contextlib.suppress(PermissionError):  # it leads a session, so it has a group
            os.setpgid(0, 0)
        return
    os.setsid()
    try:
        _wait_and_serve(binary, config, haproxy, manager)
    finally:
        os._exit(0)


def _wait_and_serve(binary: str, config: Path, haproxy: int, manager: int) -> None:
    folder = config.parent
    ended, manager_ended, node_ended = (Ended(p) for p in (haproxy, manager, _parent(manager)))
    wait_for(ended, manager_ended)
    if not ended:
        _outlive_manager(ended, node_ended, lambda: _read_pid(folder / PID) == haproxy)
        return
    if _read_pid(folder / PID) != haproxy or manager_ended or node_ended:
        return  # Ray started the next one, or everything ends
    again = folder / AGAIN
    again.write_text(SOCKET.sub(r"\1\2.again", config.read_text()))
    serving = subprocess.Popen([binary, "-db", "-f", str(again)], preexec_fn=_end_with_parent)
    (folder / AGAIN_PID).write_text(str(serving.pid))
    began_s, told = time.monotonic(), False
    manager_ended_s: float | None = None
    while serving.poll() is None and not node_ended:
        if time.monotonic() > serves_until_s(began_s, manager_ended_s, told_to_end=told):
            break
        time.sleep(POLL_S)
        if manager_ended_s is None and manager_ended:
            manager_ended_s = time.monotonic()
        told = told or _read_pid(folder / AGAIN_PID) != serving.pid
    serving.kill()
    if _read_pid(folder / AGAIN_PID) == serving.pid:
        (folder / AGAIN_PID).unlink(missing_ok=True)


def _outlive_manager(
    haproxy: "Ended", node_ended: "Ended", is_the_last: Callable[[], bool]
) -> None:
    """Let HAProxy serve until Ray's next one takes over; then it finishes its open streams."""
    until_s = time.monotonic() + LONGEST_S
    while not haproxy:
        if node_ended or (is_the_last() and time.monotonic() > until_s):
            haproxy.kill()
            return
        time.sleep(POLL_S)


def serves_until_s(began_s: float, manager_ended_s: float | None, *, told_to_end: bool) -> float:
    """When a HAProxy that took over is ended at the latest, on the clock of its arguments.

    Args:
        began_s: when it took over.
        manager_ended_s: when Ray ended the manager of the HAProxy that was killed; None: not yet.
        told_to_end: another has taken over the port; this one finishes its open streams.
    """
    if told_to_end:
        return math.inf
    latest_s = began_s + LONGEST_S
    return latest_s if manager_ended_s is None else min(latest_s, manager_ended_s + AFTER_MANAGER_S)


class Ended:
    """True once a process has ended."""

    def __init__(self, pid: int) -> None:
        self.descriptor: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self.descriptor = os.pidfd_open(pid)

    def kill(self) -> None:
        if self.descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)

    def __bool__(self) -> bool:
        if self.descriptor is None:
            return True
        return bool(select.select([self.descriptor], [], [], 0)[0])


def wait_for(*processes: Ended) -> None:
    """Return once one of them has ended."""
    known = [process.descriptor for process in processes if process.descriptor is not None]
    if len(known) == len(processes):
        select.select(known, [], [])


def _read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _runs(pid: int, config: Path) -> bool:
    """Whether this process was started with this configuration."""
    try:
        return os.fsencode(config) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return pid
    return int(stat.rpartition(")")[2].split()[1])


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
