"""The rivals of ``make bench-pd``, and how a run is judged."""

import pytest

from benchmarks.pd.measure import PdRow, Task, prefill_of, rule_of, steering_of
from benchmarks.pd.taichi import LengthAware
from controller.config import Sla
from controller.roles import Transfer
from serve_app.routing.replica_load import ReplicaLoad
from simulator.workloads.requests import Request

LINK, SLA = Transfer(327_680, 25e9, 0.005), Sla(itl_ms=50, ttft_ms=2000)
COSTS = 0.0269, 0.2308e-3, 0.12e-3
ROW = PdRow(4, "exponential:257,62", 50.0, 25.0)


def room(taken_s: float, per_s: float) -> ReplicaLoad:
    return ReplicaLoad(
        taken_s, 10, 0, 50, 0, 150_000, 100, per_s, 20.0, 257.0, 62.0, most_decodes=100
    )


def test_a_prompt_that_is_in_time_stays_with_the_decodes_and_a_late_one_does_not():
    steering = LengthAware(2, 1, LINK, SLA)
    for engine, per_s in enumerate((7500.0, 1000.0)):
        steering._ways.chooser.update(engine, room(10.0, per_s), 10.0)
    assert steering.pick(Request(10.0, 1900, 50), 10.0).prefill is None
    assert steering.pick(Request(10.0, 4000, 50), 10.0).prefill == 0


@pytest.mark.parametrize(
    ("arm", "rule", "prefill"),
    [
        ("aggregated", "aggregated", 0),
        ("auto", "auto", 0),
        ("3:1", "", 3),
        ("stock:1:3", "stock", 1),
        ("dynamo:2:2", "dynamo", 2),
        ("taichi:3:1", "taichi", 3),
    ],
)
def test_an_arm_says_who_leads_and_with_how_many(arm, rule, prefill):
    assert (rule_of(arm), prefill_of(arm)) == (rule, prefill)
    assert steering_of(Task(ROW, arm, 1)).roles.count("prefill") == prefill
