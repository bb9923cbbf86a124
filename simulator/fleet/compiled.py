"""Numba as the fluid fleet uses it."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit

HERE = Path(__file__).parent
# Compiled code has the functions it calls and the constants it reads in it, whatever file they are
# in; Numba looks for a change in the function's own file alone.
SOURCES = ("compiled.py", "fluid.py", "replica.py", "state.py", "steps.py")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled code of a function that makes no array, kept on disk until a source changes.

    Numba counts references to each array of a ``Fleet`` at every call, atomically, which took two
    thirds of a day's time. Who makes no array needs no count (``_nrt``, Numba's own word for it);
    who makes one is refused when it is compiled.
    """
    folder = cache_folder()
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        # The folder's parent is where Python keeps bytecode; an installation may forbid both.
        kept = os.access(folder.parent if folder.parent.exists() else HERE, os.W_OK)
        made: Callable[..., Any] = njit(cache=kept, _nrt=False)(function)
        return made
    finally:
        config.CACHE_DIR = before


def cache_folder(here: Path = HERE) -> Path:
    """Another one whenever one of ``SOURCES`` changes."""
    hashed = hashlib.sha256()
    for name in SOURCES:
        hashed.update((here / name).read_bytes())
    return here / "__pycache__" / f"numba-{hashed.hexdigest()[:8]}"
