"""The records' way over the wire, as vLLM's utility call and Ray send them, and its number."""

import hashlib
import inspect
import math
import re
from dataclasses import is_dataclass
from typing import Any, get_args

import msgspec
import numpy as np
import pytest

from controller.config import BatchingConfig, Block
from controller.errors import ReportError
from controller.models import histogram, survival
from controller.models.step_time import StepModel
from controller.policies.adaptive import _Remembered
from controller.records import (
    ROW_COLUMNS,
    BatchLimits,
    ClassSlo,
    ClassTarget,
    Decision,
    EngineReport,
    ReplicaReport,
    Reserve,
    from_wire,
    to_wire,
)
from controller.report_checks import check_report
from controller.switch import Switch
from controller.version import WIRE
from tests.builders import (
    histogram_of,
    limits,
    linear_steps,
    moments_of,
    recent,
    report,
    rows_of,
    sample,
)

FULL = report(
    recent=recent(0.02, 12.5, 40.0),
    lengths=moments_of([(100, 50), (7, 9)]),
    rows=rows_of(linear_steps()),
    batch=np.array([[100, 7, 9, 2]], np.float32).tobytes(),
    slos=(ClassSlo(0.05, 99.0), ClassSlo(math.inf, 99.0)),
    memory={"margin": 1.2, "late": [[1.0, 0.5]]},
    itl=histogram_of([0.02, 0.03]),
    ttft=histogram_of([1.5]),
    overruled=3,
    enforced=False,
    switches=(Switch(5, False), Switch(6, True, "g")),
)
MODEL = StepModel(c0=0.01, c1=1e-4, c2=1e-8, c3=1e-5, c4=0.0, sigma_s=1e-3)


def through_msgpack(record: Any) -> Any:
    """What is left of a record on the other side of vLLM's utility call."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(record)))


@pytest.mark.parametrize(
    "record",
    [
        limits(),
        limits(
            token_budget=512,
            model=MODEL,
            switches=(Switch(5, False, "g"),),
            by_class=(ClassTarget(0.04, 0.05), ClassTarget(0.0, 0.0)),
            reserve=Reserve(100.5, 7.25),
            memory={"margin": 1.2, "late": [[1.0, 0.5]]},
        ),
    ],
    ids=["least", "full"],
)
def test_limits_survive_msgpack(record: BatchLimits) -> None:
    assert from_wire(BatchLimits, through_msgpack(record)) == record


def test_keys_of_a_later_version_are_left_out() -> None:
    wire = to_wire(FULL)
    wire["mood"] = "good"
    wire["engine"] = {**wire["engine"], "fans": 8}
    assert from_wire(EngineReport, wire) == FULL


def test_what_a_policy_remembers_and_what_is_promised_may_be_any_number() -> None:
    check_report(FULL)


@pytest.mark.parametrize("wrong", [-0.5, math.inf, math.nan])
@pytest.mark.parametrize("table", ["batch", "queue", "rows"])
def test_a_table_with_a_wrong_number_is_refused(table: str, wrong: float) -> None:
    packed: Any = np.array([100, 7, wrong, 2], np.float32).tobytes()
    if table == "rows":
        packed = rows_of([sample(), sample(duration_s=wrong)])
    with pytest.raises(ReportError, match=rf"report\.{table}: {wrong} is not allowed"):
        check_report(report(**{table: packed}))


SENT = ReplicaReport, Decision, BatchLimits, BatchingConfig, _Remembered
PINNED = 4, "62769404"
PACKED = ROW_COLUMNS, survival.EDGES, histogram.LOWEST_S, histogram.PER_DECADE, histogram.BINS


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
