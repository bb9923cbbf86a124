"""Overlays as kustomize renders them, once for all tests."""

import copy
import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.checks.command import check_file
from serve_app.checks.crd import read_crd
from serve_app.checks.findings import Findings, Target
from tests.manifests import ROOT, Plain
from tools.kubernetes import OVERLAYS, render

CRD = ROOT / "serve_app" / "checks" / "rayservice.json.gz"

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


@pytest.fixture(scope="session")
def crd_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """KubeRay's definition as `kubectl get crd` prints it."""
    path = tmp_path_factory.mktemp("crd") / "crd.yaml"
    path.write_bytes(gzip.decompress(CRD.read_bytes()))
    return path


@pytest.fixture(scope="session")
def crd(crd_file: Path) -> dict[str, Any]:
    return read_crd(crd_file)


@pytest.fixture
def check_objects(
    tmp_path: Path, crd: dict[str, Any], quick_pickle: None
) -> Callable[[Documents | str], Findings]:
    """``brimful check --crd CRD FILE`` on objects or text."""

    def check(objects: Documents | str) -> Findings:
        path = tmp_path / "manifest.yaml"
        if not isinstance(objects, str):
            objects = yaml.dump_all(objects, Dumper=Plain)
        path.write_text(objects)
        return check_file(path, Target(env={}, local_paths=True, crd=crd))

    return check
