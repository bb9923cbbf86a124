"""What `make fuzz` starts is gone when it ends, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.processes import ended_by_sigterm, serving

# A server whose engine is a process of its own that hears nobody: not SIGTERM, not Ctrl-C.
DEAF = """
import signal, time
for one in (signal.SIGTERM, signal.SIGINT):
    signal.signal(one, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
SERVER = """
import subprocess, sys, time
engine = subprocess.Popen([sys.executable, "-c", sys.argv[2]], stdout=subprocess.PIPE)
engine.stdout.readline()
open(sys.argv[1], "w").write(str(engine.pid))
time.sleep(600)
"""


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pids")
    return tmp_path / "pids"


def command(pids: Path) -> list[str]:
    return [sys.executable, "-c", SERVER, str(pids), DEAF]


def runs(pid: int) -> bool:
    """Whether it is there, and no zombie that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_nothing_that_a_server_started_outlives_its_block(
    pids: Path, error: type[BaseException] | None
) -> None:
    def use() -> None:
        with serving(command(pids), os.environ, stop_s=0.3) as process:
            found.extend((process.pid, int(pids.read_text())))
            if error is not None:
                raise error

    found: list[int] = []
    if error is None:
        use()
    else:
        with pytest.raises(error):
            use()
    assert [runs(pid) for pid in found] == [False, False]


def test_a_server_that_ends_by_itself_is_not_waited_for_longer() -> None:
    # The time limit of the test itself is shorter.
    with serving([sys.executable, "-c", "import time; time.sleep(600)"], os.environ, 3600.0):
        pass


def test_sigterm_ends_the_caller_with_all_that_it_started(pids: Path) -> None:
    code = (
        "import os, sys\n"
        "from tests.fuzz.processes import *\n"
        "with ended_by_sigterm(), serving(sys.argv[1:], os.environ, stop_s=0.3) as server:\n"
        "    server.wait()\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code, *command(pids)])
    engine = int(pids.read_text())
    caller.terminate()
    assert caller.wait() == 128 + signal.SIGTERM
    assert not runs(engine)


def test_sigterm_is_as_it_was_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit), ended_by_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
