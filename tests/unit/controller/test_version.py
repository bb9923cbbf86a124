"""The version is the package's, and a number for what passes between replicas and controller."""

import hashlib
import inspect
import re
import tomllib
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args

from controller.config import BatchingConfig, Block
from controller.models import histogram, survival
from controller.policies.adaptive import _Remembered
from controller.records import ROW_COLUMNS, BatchLimits, ReplicaReport
from controller.version import RELEASE, VERSION, WIRE

REPO = Path(__file__).parents[3]
SENT = ReplicaReport, BatchLimits, BatchingConfig, _Remembered
PINNED = 1, "6f4817b4"
PACKED = ROW_COLUMNS, survival.EDGES, histogram.LOWEST_S, histogram.PER_DECADE, histogram.BINS


def test_it_is_the_packages_version_and_the_wires_number() -> None:
    packaged = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    assert packaged == RELEASE
    assert f"{RELEASE}+{WIRE}" == VERSION


def _kinds(hint: Any) -> set[type]:
    """The records and blocks in an annotation, with those in their fields."""
    found = {kind for inner in get_args(hint) for kind in _kinds(inner)}
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Block)):
        found |= {hint}.union(*map(_kinds, inspect.get_annotations(hint).values()))
    return found


def test_contract_another_form_of_the_wire_has_another_number() -> None:
    kinds = set().union(*map(_kinds, SENT))
    fields = {kind.__name__: sorted(inspect.get_annotations(kind).items()) for kind in kinds}
    # Without modules: it does not matter where a class stands.
    form = re.sub(r"\b[a-z_]+\.(?=[A-Za-z_])", "", str(sorted(fields.items())))
    digest = hashlib.sha256(f"{form} {PACKED}".encode()).hexdigest()[:8]
    assert (WIRE, digest) == PINNED, (
        "what passes between replicas and controller changed: raise WIRE in controller/version.py"
        f" by one, and set PINNED here to it and {digest!r}"
    )
