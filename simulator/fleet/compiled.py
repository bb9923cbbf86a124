"""Numba settings of the fluid fleet."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit

HERE = Path(__file__).parent
# Compiled code contains the functions that it calls and the constants that it reads, from any file;
# Numba only checks the function's own file for changes.
SOURCES = ("compiled.py", "fluid.py", "replica.py", "state.py", "steps.py")


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that makes no array; cached on disk until a source changes.

    Numba counts references to each array of a ``Fleet`` at every call, atomically, which took two
    thirds of a day's time. Without new arrays no count is needed (Numba's ``_nrt``); a function
    that makes one is refused at compilation.
    """
    folder = cache_folder()
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        # Python keeps bytecode in the folder's parent; an installation may forbid both.
        writable = os.access(folder.parent if folder.parent.exists() else HERE, os.W_OK)
        made: Callable[..., Any] = njit(cache=writable, _nrt=False)(function)
        return made
    finally:
        config.CACHE_DIR = before


def cache_folder(here: Path = HERE) -> Path:
    """The folder for compiled code; a new one if one of ``SOURCES`` changes."""
    hashed = hashlib.sha256()
    for name in SOURCES:
        hashed.update((here / name).read_bytes())
    return here / "__pycache__" / f"numba-{hashed.hexdigest()[:8]}"
