from typing import Any

import numpy as np
import pytest

from replicas.server.autoscaling_stats import autoscaling_stats
from simulator.fleet.outcome import Outcome
from simulator.fleet.published import Publisher
from simulator.fleet.ray_stages import ONGOING
from simulator.fleet.simulate import simulate
from tests.unit.simulator.fleet.fleets import GROUND, SLA, requests, scripted, standing, steadily


def run(
    asked: Any, *steps: tuple[float, int], seconds: float = 100.0, replicas: int = 1
) -> Outcome:
    return simulate(asked, scripted(*steps), GROUND, seconds=seconds, replicas=replicas, reads=())


def test_a_replica_takes_requests_a_start_up_after_the_decision() -> None:
    outcome = run(steadily(5.0, 100.0, 100, 10), (0.0, 1), (30.0, 3))
    assert outcome.targets[4:7].tolist() == [1, 3, 3]  # at 25, 30, 35 s
    assert outcome.ready[8:11].tolist() == [1, 3, 3]  # at 45, 50, 55 s: 20 s later
    assert outcome.replica_s == pytest.approx(100 + 2 * 70)
    assert outcome.attainment == 1.0


def test_a_start_that_is_called_off_costs_what_it_took() -> None:
    outcome = run(steadily(5.0, 100.0, 100, 10), (0.0, 1), (30.0, 3), (40.0, 1))
    assert outcome.ready.max() == 1
    assert outcome.replica_s == pytest.approx(100 + 2 * 10)


def test_a_drain_counts_until_it_is_empty() -> None:
    long = requests(*[(1.0, 100, 1500)] * 8, (90.0, 10, 2))  # some 35 s each
    outcome = run(long, (0.0, 4), (10.0, 1), replicas=4)
    assert outcome.ready[0:2].tolist() == [4, 1]
    assert 100 + 3 * 25 < outcome.replica_s < 100 + 3 * 40
    assert not np.isnan(outcome.end_s).any()


def test_from_zero_and_back_with_the_first_request_held() -> None:
    asked = requests((30.0, 100, 10), (31.0, 100, 10))
    outcome = run(asked, (0.0, 0), (35.0, 1), (80.0, 0), replicas=0)
    assert outcome.ready.tolist()[:11] == [0] * 10 + [1]
    assert (outcome.first_s > 55).all() and not np.isnan(outcome.end_s).any()
    assert outcome.attainment == 0.0  # held 25 s for a TTFT of 1 s
    assert outcome.replica_s == pytest.approx(45, abs=5.1)


def test_reversals_and_the_time_until_back_inside() -> None:
    rising = steadily(5.0, 100.0, 100, 10)
    many = steadily(60.0, 40.0, 200, 10)
    asked = rising._replace(
        arrival_s=np.sort(np.concatenate([rising.arrival_s, 40.0 + many.arrival_s])),
        input=np.full(500 + 2400, 200),
        output=np.full(500 + 2400, 10),
    )
    outcome = run(asked, (0.0, 1), (45.0, 4), (90.0, 1), seconds=160.0)
    assert outcome.reversals == 1
    assert outcome.reversals_per_h == pytest.approx(3600 / 160)
    assert outcome.attainment < 0.99
    assert 20 <= outcome.back_inside_s(40.0) <= 60
    assert run(rising, (0.0, 1)).back_inside_s(40.0) == 0.0


def test_what_is_published_has_the_names_that_replicas_publish() -> None:
    asked = steadily(5.0, 60.0, 200, 20)
    fleet, engine = standing(asked, 2)
    from simulator.fleet import fluid

    fluid.run_until(fleet, engine, 50.0)
    model = GROUND.model(asked, engine)
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


def test_what_a_policy_reads_is_the_same_as_of_one_that_reads_all() -> None:
    asked = steadily(5.0, 60.0, 200, 20)
    fleet, engine = standing(asked, 2)
    from simulator.fleet import fluid

    fluid.run_until(fleet, engine, 50.0)

    def sample(reads: tuple[str, ...] | None) -> dict[str, float]:
        publisher = Publisher(fleet, engine, SLA, GROUND.model(asked, engine), reads)
        publisher.sample({0: "a", 1: "b"}, 45.0)
        return publisher.sample({0: "a", 1: "b"}, 50.0)["b"]

    everything = sample(None)
    for name in everything.keys() - {ONGOING}:
        assert sample((name,))[name] == everything[name], name
