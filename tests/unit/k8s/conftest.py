"""Overlays as kustomize renders them, once for all tests."""

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.checks.command import check_file
from serve_app.checks.findings import Findings, Target
from tests.manifests import Plain
from tools.kubernetes import OVERLAYS, render

Documents = list[dict[str, Any]]


@cache
def _rendered(name: str) -> Documents:
    return list(yaml.safe_load_all(render(OVERLAYS / name)))


def documents(name: str) -> Documents:
    """An overlay's objects, to be changed at will."""
    return copy.deepcopy(_rendered(name))


def the(kind: str, objects: Documents, name: str | None = None) -> dict[str, Any]:
    """The object of this kind, and name if there are several."""
    (found,) = [
        one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"])
    ]
    return found


@pytest.fixture
def check_objects(tmp_path: Path, quick_pickle: None) -> Callable[[Documents | str], Findings]:
    """``brimful check FILE`` on objects or text."""

    def check(objects: Documents | str) -> Findings:
        path = tmp_path / "manifest.yaml"
        if not isinstance(objects, str):
            objects = yaml.dump_all(objects, Dumper=Plain)
        path.write_text(objects)
        return check_file(path, Target(env={}, local_paths=True))

    return check
