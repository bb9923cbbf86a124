"""Serve configs, step-time profiles and workloads, as a package: a wheel has them as well."""

from importlib.resources import files
from pathlib import Path


def shipped(name: str) -> Path:
    """The path of a file or folder of this package, wherever it is installed."""
    return Path(str(files(__name__) / name))
