"""``brimful serve`` under way: what it says, and how it ends."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from serve_app.environment import variables
from tests.ray.conftest import METRICS_PORT, PORT, STATS_PORT
from tests.ray.processes import Started, heed_ctrl_c

START_S, STOP_S = 420, 180
PORTS = {
    "RAY_SERVE_HAPROXY_METRICS_PORT": str(METRICS_PORT),
    "RAY_SERVE_HAPROXY_STATS_PORT": str(STATS_PORT),
}
BASE = f"http://127.0.0.1:{PORT}"


class Serving:
    """A command under way, and what it has said."""

    def __init__(self, log: Path, *argv: str, **environment: str) -> None:
        # A simulator that other tests import has vLLM say errors alone.
        unset = {*variables(), "VLLM_LOGGING_LEVEL"}
        own = {k: v for k, v in os.environ.items() if k not in unset}
        self.started = Started()
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serve_app.cli", "serve", *argv],
            env={**own, **PORTS, **self.started.environment, **environment},
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
            preexec_fn=heed_ctrl_c,
        )

    def wait(self, text: str, timeout_s: float = START_S) -> str:
        """What it has said, once this is part of it."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s and self.process.poll() is None:
            if re.search(text, said := self.log.read_text()):
                return said
            time.sleep(0.5)
        raise AssertionError(f"never {text!r}: {self.log.read_text()}")

    def end(self, by: signal.Signals) -> int:
        """Its exit status after this signal."""
        self.process.send_signal(by)
        return self.process.wait(STOP_S)


@contextlib.contextmanager
def serving(log: Path, *argv: str, **environment: str) -> Iterator[Serving]:
    """The command for a ``with`` block; whatever happens in it, nothing that it started is left."""
    made = Serving(log, *argv, **environment)
    try:
        yield made
    finally:
        for _ in range(2):  # at once
            if made.process.poll() is None:
                made.process.send_signal(signal.SIGTERM)
                time.sleep(1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            made.process.wait(STOP_S)
        made.started.end()
