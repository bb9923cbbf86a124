"""The rivals of ``make bench-pd``, and how a run is judged."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.pd.dynamo import Planner
from benchmarks.pd.measure import PdRow, Task, prefill_of, rule_of, steering_of, warmed_up
from benchmarks.pd.table import AGGREGATED, AUTO, arms_of, figures, without_link
from benchmarks.pd.taichi import LengthAware
from controller.config import Sla
from controller.roles import Transfer
from serve_app.routing.replica_load import ReplicaLoad
from simulator.workloads.requests import Request

LINK, SLA = Transfer(327_680, 25e9, 0.005), Sla(itl_ms=50, ttft_ms=2000)
COSTS = 0.0269, 0.2308e-3, 0.12e-3
ROW = PdRow(4, "exponential:257,62", 50.0, 25.0)


@pytest.mark.parametrize(("tokens", "prefill"), [((257, 62), 3), ((257, 447), 1), ((8192, 1), 3)])
def test_the_planner_divides_engines_as_the_loads(tokens, prefill):
    planner = Planner(4, 2, LINK, SLA, COSTS, (256, 200_000))
    assert planner.prefill_of(100, 100 * tokens[0], 100 * tokens[1]) == prefill


def test_the_planner_knows_that_a_batch_has_to_fit_into_memory():
    def prefill(*most: int) -> int:
        return Planner(16, 8, LINK, SLA, COSTS, most).prefill_of(1, 4096, 200)

    assert prefill(256, 10**9) > prefill(256, 100_000)
    assert prefill(24, 10**9) == prefill(256, 24 * 4196)


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


def test_runs_begin_at_half_the_rate():
    asked = tuple(Request(at / 2, 10, 10) for at in range(100))
    warm = warmed_up(asked)
    gaps_s = np.diff([one.arrival_s for one in warm])
    assert np.allclose(gaps_s[:20], 1.0) and np.allclose(gaps_s[20:], 0.5)


def test_figures_of_a_row():
    arms = arms_of(ROW, 1, 1, ("stock", "dynamo", "taichi"))
    assert arms == [AGGREGATED, AUTO, "2:2", "stock:2:2", "dynamo:2:2", "taichi:2:2"]
    found = {Task(ROW, arm, 1): float(k + 1) for k, arm in enumerate(arms)}
    by_id = {one.id.split("_")[1]: one.estimate.value for one in figures(found)}
    assert by_id["aggregated"] == 2.0 and by_id["fixed"] == pytest.approx(2 / 3)
    assert by_id["dynamo"] == pytest.approx(2 / 5)


def test_aggregated_engines_run_once_whatever_the_link():
    fast = Task(replace(ROW, link_gbit_s=200.0), AGGREGATED, 1)
    assert without_link(fast) == Task(ROW, AGGREGATED, 1)
    assert without_link(replace(fast, arm=AUTO)).row.link_gbit_s == 200.0
