"""The records' way over the wire, as vLLM's utility call and Ray send them."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from controller.errors import ReportError
from controller.models.step_time import StepModel
from controller.records import (
    BatchLimits,
    BoundSteps,
    ClassSlo,
    ClassTarget,
    EngineLimits,
    EngineReport,
    LogHistogram,
    PackedRows,
    RecentSteps,
    Reserve,
    StepLimits,
    from_wire,
    to_wire,
)
from controller.report_checks import check_report
from controller.switch import Switch
from tests.builders import governor as a_governor
from tests.builders import (
    histogram_of,
    limits,
    linear_steps,
    moments_of,
    recent,
    report,
    rows_of,
    sample,
    state,
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
LATER = ("overruled", "rows", "batch", "slos", "memory", "model", "bound_steps")
LATER += ("capacity_per_s", "sla_out_of_reach", "enforced", "switches")
MODEL = StepModel(c0=0.01, c1=1e-4, c2=1e-8, c3=1e-5, c4=0.0, sigma_s=1e-3)


def through_msgpack(record: Any) -> Any:
    """What is left of a record on the other side of vLLM's utility call."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(record)))


def test_what_a_governor_measured_survives_msgpack() -> None:
    g = a_governor()
    g.after_step(sample(), prefills=1)  # its statistics are made by numpy
    g.finished(100, 50)
    made = g.report(state(), 1.0, "r", "g")
    assert from_wire(EngineReport, through_msgpack(made)) == made


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


def test_a_refusal_names_the_place_in_the_histogram() -> None:
    counts = (0, -2, *LogHistogram().counts[2:])
    with pytest.raises(ReportError) as refused:
        check_report(report(itl=LogHistogram(counts)))
    assert str(refused.value) == ("report.itl.counts[1]: -2 is not allowed: a finite number from 0")


def test_of_what_nothing_is_known_every_number_is_zero() -> None:
    for nothing in (BoundSteps(), RecentSteps()):
        assert not any(getattr(nothing, name) for name in nothing.__slots__)
    least = from_wire(EngineReport, {k: v for k, v in to_wire(report()).items() if k not in LATER})
    assert (least.overruled, least.rows, least.model) == (0, PackedRows(), None)
    assert (least.batch_table.shape, least.slos, least.memory) == ((0, 4), (), {})
    assert (least.capacity_per_s, least.sla_out_of_reach) == (None, False)
    assert (least.enforced, least.switches, least.bound_steps) == (True, (), BoundSteps())
    pushed = BatchLimits(5.0, 64, None, "sla")
    assert (pushed.enforce, pushed.replicas, pushed.sla_out_of_reach) == (True, 1, False)
    assert (pushed.capacity_per_s, pushed.model, pushed.reserve) == (None, None, None)
    assert EngineLimits(256, 2048, 20_000, 16).tokens_per_decode == 1
    assert not StepLimits(8, 64).may_pause_prefill
    assert report(engine=EngineLimits(256, 2048, 0, 16)).kv_frac == 0


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
