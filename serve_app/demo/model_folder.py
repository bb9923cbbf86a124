"""A folder with a model, made once by the first process that asks."""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

STAMP = "brimful.json"
WEIGHTS = "model.safetensors"


@contextlib.contextmanager
def made_once(path: Path, **asked: object) -> Iterator[bool]:
    """Whether the caller has to make the model in ``path`` now.

    It need not if this very model was made before. A stamp that says so is written at the end,
    with the checksum of the weights: a folder that was left half-made, or whose weights changed,
    counts as empty. Of several processes that ask at once one makes it, and the others wait.

    Args:
        asked: the parameters of the model, as JSON.
    """
    stamp = path / STAMP
    path.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        if stamp.exists() and stamp.read_text() == _stamp(path, asked):
            yield False
            return
        stamp.unlink(missing_ok=True)
        yield True
        stamp.write_text(_stamp(path, asked))


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path, asked: dict[str, object]) -> str:
    weights = path / WEIGHTS
    return json.dumps({**asked, WEIGHTS: sha256(weights) if weights.exists() else None})


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    directory = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)  # and with it the lock
