"""The autoscaling policy, fed with a handwritten context: numbers in, replicas out."""

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from serve_app.autoscaling import CapacityPolicy, replicas_for_queue, replicas_needed


@dataclass
class Context:
    """The part of Ray Serve's AutoscalingContext that the policy reads."""

    aggregated_metrics: dict[str, dict[str, float]] | None
    current_num_replicas: int = 1
    target_num_replicas: int = 1
    current_time: float = 0.0
    policy_state: dict[str, Any] = field(default_factory=dict)


def policy() -> CapacityPolicy:
    return CapacityPolicy(target_utilization=0.85, drain_s=20.0, queue_factor=2.0, queue_for_s=30.0)


def metrics(*replicas: dict[str, float]) -> dict[str, dict[str, float]]:
    """What Ray Serve makes of each replica's numbers: by metric, then by replica."""
    by_name: dict[str, dict[str, float]] = {}
    for index, numbers in enumerate(replicas):
        for name, value in numbers.items():
            by_name.setdefault(name, {})[f"r{index}"] = value
    return by_name


def replica(arrivals: float = 0.0, waiting: float = 0.0, **numbers: float) -> dict[str, float]:
    plain = {"running": 10.0, "max_running": 64.0, "capacity_per_s": 8.0}
    return plain | {"arrival_rate_per_s": arrivals, "waiting": waiting} | numbers


def unknown(waiting: float, running: float = 64.0, max_running: float = 64.0) -> dict[str, float]:
    return {"running": running, "waiting": waiting, "max_running": max_running}


@pytest.mark.parametrize(
    ("arrivals", "backlog", "replicas"),
    [(0, 0, 1), (6.8, 0, 1), (6.9, 0, 2), (13.7, 0, 3), (0, 272, 2), (6.0, 40, 2)],
)
def test_replicas_needed_is_the_formula(arrivals: float, backlog: float, replicas: int) -> None:
    # rho x capacity = 6.8/s; a backlog of 20 is 1/s of demand.
    needed = replicas_needed(arrivals, backlog, 8.0, drain_s=20.0, target_utilization=0.85)
    assert needed == replicas


@pytest.mark.parametrize(("in_engine", "replicas"), [(0, 1), (54, 1), (55, 2), (109, 3)])
def test_replicas_for_queue_fills_rho_of_every_cap(in_engine: float, replicas: int) -> None:
    assert replicas_for_queue(in_engine, 64, 0.85) == replicas  # 54.4 each


def test_traffic_takes_the_fleet_from_one_to_two_and_back() -> None:
    scale = policy()
    low = Context(metrics(replica(arrivals=3.0)))
    assert scale(low)[0] == 1
    high = Context(metrics(replica(arrivals=10.0, waiting=30.0)))
    assert scale(high)[0] == 2
    shared = Context(metrics(replica(arrivals=5.0), replica(arrivals=5.0)), 2, 2)
    assert scale(shared)[0] == 2
    gone = Context(metrics(replica(arrivals=1.5), replica(arrivals=1.5)), 2, 2)
    assert scale(gone)[0] == 1


@pytest.mark.parametrize(
    "published", [None, {}, {"waiting": {"r0": 100.0}}, {"max_running": {"r0": 0.0}}]
)
def test_while_nothing_is_published_the_fleet_stays(
    published: dict[str, dict[str, float]] | None,
) -> None:
    assert policy()(Context(published, 3, target_num_replicas=4)) == (4, {})


def test_where_no_model_is_known_the_queue_alone_decides() -> None:
    assert policy()(Context(metrics(unknown(waiting=0, running=10))))[0] == 1
    assert policy()(Context(metrics(unknown(waiting=60))))[0] == 3  # 124 / 54.4


def out_of_reach(waiting: float = 0.0, flag: float = 1.0) -> dict[str, float]:
    """40 run in steps longer than the SLA; neither cap nor capacity is published."""
    return {"running": 40.0, "waiting": waiting, "arrival_rate_per_s": 9.0} | {
        "sla_out_of_reach": flag
    }


@pytest.mark.parametrize("waiting", [0.0, 500.0])
def test_an_sla_out_of_reach_leaves_the_replicas_as_they_are(waiting: float) -> None:
    desired, state = policy()(Context(metrics(out_of_reach(waiting)), 2, target_num_replicas=3))
    assert (desired, state) == (3, {"brimful_unscaled_because": "sla_out_of_reach"})


def test_a_capacity_of_zero_from_an_earlier_version_is_an_sla_out_of_reach() -> None:
    broken = replica(running=40.0, max_running=1.0, capacity_per_s=0.0)
    desired, state = policy()(Context(metrics(broken)))
    assert (desired, state) == (1, {"brimful_unscaled_because": "sla_out_of_reach"})


def test_why_nothing_is_scaled_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "ray.serve")
    for name in ("ray", "ray.serve"):  # where Ray was imported, it keeps its log to itself
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    scale, state, logged = policy(), dict[str, Any](), list[int]()
    fine = replica(arrivals=10.0, sla_out_of_reach=0.0)
    for said in (fine, out_of_reach(), out_of_reach(), fine, fine, out_of_reach()):
        _, state = scale(Context(metrics(said), 1, 2, policy_state=state))
        logged.append(len(caplog.records))
    assert logged == [0, 1, 1, 2, 2, 3]
    assert caplog.messages[0].endswith("so the number stays at 2.")
    assert "in reach again" in caplog.messages[1]


def test_an_sla_out_of_reach_for_less_than_half_of_the_time_counts_as_in_reach() -> None:
    mixed = replica(arrivals=10.0)
    assert policy()(Context(metrics(mixed | {"sla_out_of_reach": 0.49})))[0] == 2
    assert policy()(Context(metrics(mixed | {"sla_out_of_reach": 0.5})))[0] == 1


def test_replicas_whose_sla_is_in_reach_decide_for_those_whose_is_not() -> None:
    # 19/s at 6.8 each; neither 1/s nor its cap of 1 counts.
    odd = out_of_reach() | {"capacity_per_s": 1.0, "max_running": 1.0}
    desired, state = policy()(Context(metrics(odd, replica(arrivals=10.0)), 2, 2))
    assert (desired, state) == (4, {})  # three, and the one that does not count
    unmodelled = unknown(waiting=60, running=64)
    assert policy()(Context(metrics(odd, unmodelled), 2, 2))[0] == 5  # 164 / 54.4, and one


def test_a_cap_at_which_no_request_waits_asks_for_no_more() -> None:
    assert policy()(Context(metrics(unknown(waiting=0, running=40, max_running=1))))[0] == 1
    assert policy()(Context(metrics(unknown(waiting=0, running=64)), 1, 1))[0] == 1
    assert policy()(Context(metrics(unknown(waiting=0, running=64)), 1, 2))[0] == 2


def test_where_no_request_waits_queue_depth_takes_replicas_away_all_the_same() -> None:
    assert policy()(Context(metrics(unknown(waiting=0, running=10)), 3, 3))[0] == 1


def test_queue_depth_goes_by_the_mean_cap() -> None:
    fleet = metrics(unknown(60, running=40, max_running=50), unknown(60, 70, max_running=78))
    assert policy()(Context(fleet, 2, 2))[0] == 5  # 230 / 54.4


def test_a_cap_below_what_runs_counts_as_what_runs() -> None:
    # 45 requests at 0.85 x 40, not at 0.85 x 1.
    assert policy()(Context(metrics(unknown(waiting=5, running=40, max_running=1))))[0] == 2


def test_a_new_replica_without_a_model_does_not_hide_the_others() -> None:
    fleet = metrics(replica(arrivals=10.0), unknown(waiting=0, running=0))
    assert policy()(Context(fleet, 2, 2))[0] == 2


def test_capacities_of_several_replicas_are_averaged() -> None:
    fleet = metrics(
        replica(arrivals=10.0, capacity_per_s=4.0), replica(arrivals=10.0, capacity_per_s=12.0)
    )
    assert policy()(Context(fleet, 2, 2))[0] == 3  # 20 / (0.85 x 8)


def deep(at_s: float, state: dict[str, Any], waiting: float = 129.0) -> Context:
    # 129 waiting is more than twice the cap; the capacity seems ample all the same.
    return Context(
        metrics(replica(waiting=waiting, capacity_per_s=1000.0)),
        current_time=at_s,
        policy_state=state,
    )


def test_a_queue_deep_for_30_s_asks_for_one_more_whatever_the_model_says() -> None:
    scale = policy()
    desired, state = scale(deep(100.0, {}))
    assert desired == 1
    desired, state = scale(deep(129.9, state))
    assert desired == 1
    desired, state = scale(deep(130.0, state))
    assert desired == 2


def test_a_queue_that_was_short_once_starts_the_30_s_anew() -> None:
    scale = policy()
    _, state = scale(deep(100.0, {}))
    _, state = scale(deep(120.0, state, waiting=128.0))  # exactly twice the cap is not above it
    assert state == {}
    _, state = scale(deep(121.0, state))
    assert scale(deep(150.9, state))[0] == 1
    assert scale(deep(151.0, state))[0] == 2


def test_a_deep_queue_never_asks_for_fewer_than_the_model_does() -> None:
    context = Context(
        metrics(replica(arrivals=100.0, waiting=500.0)),
        current_time=60.0,
        policy_state={"brimful_queue_deep_since_s": 0.0},
    )
    assert policy()(context)[0] == 19  # (100 + 500 / 20) / 6.8


def test_the_policy_is_made_from_the_scaling_block() -> None:
    from serve_app.config import parse_scaling

    assert CapacityPolicy(**parse_scaling(None).model_dump())(Context(None)) == (1, {})
