"""Rounds: every server in turn, warm and alone on the machine, under the same loads."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.path.client import Load, LoadError, Seen
from benchmarks.path.processes import spent_s
from benchmarks.path.stacks import MODEL, Running, Stack, running
from benchmarks.report.document import ROOT
from controller.errors import BrimfulError
from serve_app.demo.client import prompts
from serve_app.demo.tiny_model import make_tiny_model

MAX_TOKENS = 64
PROMPT_WORDS = (18, 24)  # about as many tokens as are generated
# Requests of each stream: two to four seconds a load, equal for all servers.
TURNS = {1: 8, 8: 6, 32: 4, 64: 3}
WARM_STREAMS = 16
SETTLE_S = 1.5  # for a resumed server to catch up
IDLE_S = 5.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One load on one server.

    Args:
        round: servers are compared within a round.
        cpu_s: of the server's processes.
    """

    stack: str
    round: int
    streams: int
    seen: Seen
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """All measurements, in order.

    Args:
        failed: errors that broke the run off; earlier loads count.
    """

    loads: list[Measured] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Client:
    """The client's process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.path.client"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, url: str, streams: int, turns: int) -> Seen:
        """Send one load; returns the client's measurements.

        Raises:
            LoadError: an answer was not whole, or the client ended.
        """
        texts = tuple(prompts(streams * turns, PROMPT_WORDS, seed=streams))
        load = Load(url, MODEL, streams, turns, MAX_TOKENS, texts)
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(_plain(load)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the client ended"}
        if "error" in answer:
            raise LoadError(f"{url}, {streams} streams: {answer['error']}")
        seen = answer["seen"]
        pairs = {key: tuple(seen[key]) for key in ("ttft_ms", "itl_ms")}
        return Seen(**(seen | pairs))

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _plain(load: Load) -> dict[str, Any]:
    return {name: getattr(load, name) for name in Load.__slots__}


def measure(
    stacks: Sequence[Stack], streams: Sequence[int], rounds: int, turns: int | None
) -> Found:
    """The servers are up together and take turns.

    While one is measured, the processes of all others are stopped: they take no CPU.

    Args:
        streams: of the loads, each a measurement.
        turns: requests of each stream; None: ``TURNS``.
    """
    found = Found()
    model = make_tiny_model(ROOT / ".cache" / "tiny-llama")
    steps = rounds * len(streams) * len(stacks)
    with contextlib.ExitStack() as up, tqdm(total=steps, file=sys.stderr) as bar:
        client = Client()
        up.callback(client.end)
        logs = Path(up.enter_context(tempfile.TemporaryDirectory()))
        try:
            servers = [_start(up, one, model, logs, client, bar) for one in stacks]
            for number in range(rounds):
                # The order alternates, so a machine that slows down favours none.
                for server in servers[:: 1 if number % 2 else -1]:
                    _turn(server, client, streams, turns, number, found, bar)
        except BrimfulError as error:
            found.failed.append(str(error))
    return found


def _start(
    up: contextlib.ExitStack,
    stack: Stack,
    model: Path,
    logs: Path,
    client: Client,
    bar: Any,
) -> Running:
    bar.set_description(f"{stack.name} starts")
    server = up.enter_context(running(stack, model, logs))
    client.send(server.url, 64, 1)  # the first load after a start is cold
    time.sleep(IDLE_S)  # Ray Serve goes on for seconds after it said RUNNING
    server.tree.stop()
    return server


def _turn(
    server: Running,
    client: Client,
    streams: Sequence[int],
    turns: int | None,
    number: int,
    found: Found,
    bar: Any,
) -> None:
    name = server.stack.name
    bar.set_description(name)
    server.tree.resume()
    time.sleep(SETTLE_S)
    client.send(server.url, WARM_STREAMS, 1)
    for count in streams:
        before = server.tree.cpu_s()
        seen = client.send(server.url, count, turns or TURNS.get(count, 1))
        cpu_s = spent_s(before, server.tree.cpu_s())
        found.loads.append(Measured(name, number, count, seen, cpu_s))
        bar.update()
    server.tree.stop()
