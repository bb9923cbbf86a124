"""A fleet in virtual time: starts, losses, roles, what is published."""

import numpy as np
import pytest

from controller.errors import ConfigError
from replicas.server.autoscaling_stats import autoscaling_stats
from simulator.fleet import fluid
from simulator.fleet.outcome import Outcome
from simulator.fleet.published import Publisher
from simulator.fleet.ray_stages import ONGOING
from simulator.fleet.replica_pool import Overflow, ReplicaPool, parse_overflow
from simulator.fleet.simulate import simulate
from simulator.fleet.traffic import Requests
from tests.unit.simulator.fleet.fleets import (
    PROFILE,
    SCENARIO,
    SLA,
    requests,
    scripted,
    standing,
    steadily,
)


def run(
    asked: Requests,
    *steps: tuple[float, int],
    replicas: int = 1,
    seconds: float = 100.0,
    overflow: Overflow | None = None,
) -> Outcome:
    return simulate(
        asked,
        scripted(*steps),
        SCENARIO,
        seconds=seconds,
        replicas=replicas,
        reads=(),
        overflow=overflow,
    )


def test_a_replica_takes_requests_a_start_up_after_the_decision() -> None:
    outcome = run(steadily(5.0, 100.0, 100, 10), (0.0, 1), (30.0, 3))
    assert outcome.targets[4:7].tolist() == [1, 3, 3]  # at 25, 30, 35 s
    assert outcome.ready[8:11].tolist() == [1, 3, 3]  # at 45, 50, 55 s: 20 s later
    assert outcome.replica_s == pytest.approx(100 + 2 * 70)
    assert outcome.attainment == 1.0


def test_from_zero_and_back_with_the_first_request_held() -> None:
    asked = requests((30.0, 100, 10), (31.0, 100, 10))
    outcome = run(asked, (0.0, 0), (35.0, 1), (80.0, 0), replicas=0)
    assert outcome.ready.tolist()[:11] == [0] * 10 + [1]
    assert (outcome.first_s > 55).all() and not np.isnan(outcome.end_s).any()
    assert outcome.attainment == 0.0  # held 25 s for a TTFT of 1 s
    assert outcome.replica_s == pytest.approx(45, abs=5.1)


def test_what_is_published_has_the_names_that_replicas_publish() -> None:
    asked = steadily(5.0, 60.0, 200, 20)
    fleet, engine = standing(asked, 2)
    fluid.run_until(fleet, engine, 50.0)
    model = SCENARIO.model(asked, engine)
    publisher = Publisher(fleet, engine, SLA, model)
    publisher.sample({0: "a", 1: "b"}, 45.0)
    found = publisher.sample({0: "a", 1: "b"}, 50.0)["a"]
    theirs = autoscaling_stats(publisher._template)
    assert theirs.keys() <= found.keys()
    assert found["running"] + found["waiting"] == found[ONGOING]
    # q = (D - c0) / (D (c3 E[in] + c1 E[out]))
    expected = (0.05 - 0.02) / (0.05 * (0.0001 * 200 + 0.0005 * 20))
    assert found["capacity_per_s"] == pytest.approx(expected, rel=0.02)
    assert found["prompt_tokens"] == 200 and found["output_tokens"] == 20
    assert 0 < found["kv_used_frac"] < 0.1


def test_what_is_wanted_above_the_base_is_of_the_second_group_and_goes_first() -> None:
    steps = [(0.0, 1), (30.0, 3), (60.0, 1)]
    overflow = Overflow(base=1, price=0.25, losses_per_h=0.0)
    outcome = run(steadily(5.0, 100.0, 100, 10), *steps, overflow=overflow)
    assert outcome.overflow_s == pytest.approx(2 * 30, abs=2 * 5.1)  # asked for at 30 s
    assert outcome.replica_s - outcome.overflow_s == pytest.approx(100)
    cost_s = 100 + 0.25 * outcome.overflow_s
    assert outcome.cost_hours(0.25) == pytest.approx(cost_s / 3600)
    assert outcome.lost == 0


def test_with_notice_the_loss_of_replicas_costs_no_request() -> None:
    # Forty losses an hour of each: with three of them, some ten in five minutes.
    asked = steadily(20.0, 300.0, 100, 50)
    spot = Overflow(base=1, losses_per_h=40.0, notice_s=30.0)
    outcome = run(asked, (0.0, 4), seconds=300.0, replicas=4, overflow=spot)
    assert (np.diff(outcome.ready) < 0).sum() >= 5 and outcome.ready[-5:].max() <= 4
    assert not np.isnan(outcome.end_s).any() and outcome.lost == 0


def test_who_has_no_byte_yet_gets_a_second_chance_and_who_has_is_lost() -> None:
    asked = requests(*[(0.0, 1000, 400)] * 12, (50.0, 10, 2))
    fleet, engine = standing(asked, 0, slots=[3])
    fleet.status[3] = 0
    pool = ReplicaPool(fleet, engine, 20.0, 1, Overflow(base=0, losses_per_h=1e-9, notice_s=1.0))
    pool._ends[0] = (0.5, False)  # notice after half a second, gone a second later
    pool.scale_to(2, 0.0)
    pool.work_until(1.4)
    assert pool.ready == 0 and pool.lost == 0
    pool.work_until(30.0)
    answered = int((fleet.first_s < 1.5 + 0.1).sum())
    assert pool.taken == 1 and 0 < pool.lost <= answered < 12
    assert pool.resent == 12 - pool.lost
    pool.work_until(200.0)
    assert int(np.isnan(fleet.end_s).sum()) == pool.lost


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("price=0.5", "base=N or quantile=SHARE is needed, and not both"),
        ("base=1,quantile=0.5", "base=N or quantile=SHARE is needed, and not both"),
        ("base=-1", "overflow.base: -1 is not allowed"),
        ("base=1.5", "overflow.base: 1.5 is not allowed"),
        ("base=many", "overflow.base: 'many' is not allowed"),
        ("base=1,price=0", "overflow.price: 0 is not allowed"),
        ("base=1,notice_s=-1", "overflow.notice_s: -1 is not allowed"),
        ("base=1,prise=0.5", "overflow: unknown key 'prise'"),
    ],
)
def test_an_overflow_that_is_written_wrong(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_overflow(text)


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


def test_capacity_is_what_the_formula_gives() -> None:
    # q = (D - c0) / (D (c3 E[in] + c1 E[out]))
    per_s = (0.05 - 0.02) / (0.05 * (0.0001 * 400 + 0.0005 * 40))
    fleet, engine = standing(steadily(1.3 * per_s, 200.0, 400, 40), 1)
    fluid.run_until(fleet, engine, 200.0)
    assert fleet.counts[0] / 200 == pytest.approx(per_s, rel=0.03)
    assert PROFILE.max_num_seqs > fleet.decodes[0]
