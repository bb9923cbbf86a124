"""Runs the tests on one mutant after the other, each in a child of this process.

What the tests import from elsewhere is imported once, before the forks; of this repository nothing
is, so that every child imports it anew, with the mutant in the module's place.
"""

import gc
import importlib
import importlib.machinery
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from tests.mutants.cover import QUIET
from tests.mutants.mutations import Mutant

PRELOADED = ("numpy", "pydantic", "yaml", "msgspec", "jsonschema", "hypothesis.strategies", "ssl")
CPU_S = 15  # far more than the tests of one mutant take: it never ends
MEMORY_BYTES = 8 << 30


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from the mutant's source."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._mutated = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutated, self.path, "exec")


class _Finder(MetaPathFinder):
    """Finds one module: the mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = mutant.file.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        file = str(Path(self._mutant.file).resolve())
        loader = _Loader(name, file, self._mutant.source)
        return importlib.machinery.ModuleSpec(name, loader, origin=file)


def preload() -> None:
    """Import what the tests need from elsewhere, pytest's plugins included."""
    for name in PRELOADED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as empty:
        pytest.main([*QUIET, empty])
    gc.freeze()


def is_killed(mutant: Mutant, tests: Sequence[str]) -> bool:
    """Whether one of these tests fails, or never ends; they run up to the first that does."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return status != 0
    try:
        code = _run(mutant, tests)
    except BaseException:
        code = 1
    os._exit(code)


def _run(mutant: Mutant, tests: Sequence[str]) -> int:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.meta_path.insert(0, _Finder(mutant))
    return int(pytest.main([*QUIET, "-x", "--timeout=300", *tests]))
