import numpy as np
import pytest

from simulator.fleet import fluid, steps
from simulator.fleet.state import ABSENT, DRAINING, occupy
from tests.unit.simulator.fleet.fleets import PROFILE, SLA, requests, standing, steadily


def test_prompts_take_what_the_sla_leaves_beside_the_decodes() -> None:
    _, engine = standing(requests((0.0, 1, 1)), 1)
    per_s, step_s = steps.prompt_rate(engine, 20, 0.0, 1000.0)
    assert step_s == pytest.approx(0.05)
    assert per_s == pytest.approx((0.05 - 0.03) / 0.0001 / 0.05)
    floored, slow_s = steps.prompt_rate(engine, 64, 0.0, 1000.0)  # 52 ms without a prompt
    assert floored == pytest.approx(0.01 * (1000 - 64) / slow_s)


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_request_is_served_once_and_whole(replicas: int) -> None:
    asked = steadily(20.0, 30.0, 200, 20)
    fleet, engine = standing(asked, replicas)
    fluid.run_until(fleet, engine, 1000.0)
    assert fleet.counts.tolist() == [600, 600]
    assert sorted(fleet.done.tolist()) == list(range(600))
    assert (fleet.first_s > asked.arrival_s).all() and (fleet.end_s >= fleet.first_s).all()
    assert fleet.held.sum() == 0 and fleet.backlog.sum() == pytest.approx(0)
    assert fleet.arrivals.sum() == 600


def test_who_is_too_late_lets_others_go_first() -> None:
    crowd = [(0.0, 1000, 2)] * 60
    fleet, engine = standing(requests(*crowd, (6.0, 10, 2)), 1)
    fluid.run_until(fleet, engine, 100.0)
    assert fleet.first_s[60] - 6.0 < SLA.ttft_ms / 1000  # type: ignore[operator]
    assert fleet.first_s[:60].max() > 6.5


def test_requests_are_held_until_a_replica_is_there() -> None:
    fleet, engine = standing(requests((0.0, 100, 5), (1.0, 100, 5)), 0)
    fluid.run_until(fleet, engine, 5.0)
    assert fleet.hold[2] == 2
    from simulator.fleet.state import occupy

    occupy(fleet, 2, 5.0)
    fluid.run_until(fleet, engine, 10.0)
    assert fleet.hold[2] == 0
    assert (fleet.first_s > 5).all() and fleet.counts[0] == 2


def test_no_replica_takes_more_than_max_ongoing() -> None:
    asked = requests(*[(0.0, 100, 50)] * 12)
    fleet, engine = standing(asked, 2)
    engine = engine._replace(max_ongoing=3)
    fluid.run_until(fleet, engine, 0.05)
    assert fleet.arrivals.tolist()[:2] == [3, 3] and fleet.hold[2] == 6
    for until_s in np.arange(1.0, 30.0):
        fluid.run_until(fleet, engine, until_s)
    assert fleet.counts[0] == 12


def test_a_drained_replica_ends_what_it_has_and_gets_no_more() -> None:
    asked = requests((0.0, 100, 200), (0.1, 100, 200), (0.2, 100, 200), (1.0, 100, 5))
    fleet, engine = standing(asked, 2)
    fluid.run_until(fleet, engine, 0.5)
    before = int(fleet.arrivals[0])
    fleet.status[0] = DRAINING
    fluid.run_until(fleet, engine, 2.0)
    assert fleet.status[0] == DRAINING and fleet.arrivals[0] == before
    fluid.run_until(fleet, engine, 60.0)
    assert fleet.status[0] == ABSENT and fleet.counts[0] == 4


def test_memory_that_is_full_lets_nobody_start() -> None:
    asked = requests(*[(0.0, 900, 300)] * 10)
    fleet, engine = standing(asked, 1)
    engine = engine._replace(kv_tokens=2500.0)
    fluid.run_until(fleet, engine, 3.0)
    assert fleet.decodes[0] == 2 and fleet.waiting[0] == 8
    fluid.run_until(fleet, engine, 600.0)
    assert fleet.counts[0] == 10


def test_the_router_spreads_evenly() -> None:
    fleet, engine = standing(steadily(40.0, 60.0, 200, 20), 4)
    fluid.run_until(fleet, engine, 200.0)
    assert fleet.arrivals[:4].max() - fleet.arrivals[:4].min() < 0.1 * 600


def test_an_engine_that_is_full_keeps_the_sla_between_tokens() -> None:
    asked = steadily(100.0, 20.0, 400, 5)
    fleet, engine = standing(asked, 1)
    fluid.run_until(fleet, engine, 2000.0)
    gaps_s = (fleet.end_s - fleet.first_s) / 4
    assert gaps_s[100:].max() <= 0.05 * (1 + 1e-6)


def test_capacity_is_what_the_formula_gives() -> None:
    # q = (D - c0) / (D (c3 E[in] + c1 E[out]))
    per_s = (0.05 - 0.02) / (0.05 * (0.0001 * 400 + 0.0005 * 40))
    fleet, engine = standing(steadily(1.3 * per_s, 200.0, 400, 40), 1)
    fluid.run_until(fleet, engine, 200.0)
    assert fleet.counts[0] / 200 == pytest.approx(per_s, rel=0.03)
    assert PROFILE.max_num_seqs > fleet.decodes[0]


def test_first_tokens_and_late_ones_are_counted_by_replica() -> None:
    # 1,000 tokens each in steps of 50 ms: some 7,000 tokens/s of prompts at best, 1 s to the first.
    asked = requests(*[(0.0, 1000, 1)] * 30)
    fleet, engine = standing(asked, 1)
    fluid.run_until(fleet, engine, 60.0)
    late = int((fleet.first_s - asked.arrival_s > 1.0).sum())
    assert fleet.firsts[0] == 30 and fleet.lates[0] == late and 0 < late < 30
    occupy(fleet, 0, 60.0)
    assert fleet.firsts[0] == fleet.lates[0] == 0
