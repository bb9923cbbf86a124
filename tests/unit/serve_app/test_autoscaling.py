"""The autoscaling policy, fed with a handwritten context: numbers in, replicas out."""

import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private.autoscaling_state import _apply_autoscaling_config
from ray.serve.config import AutoscalingConfig

from serve_app.autoscaling import DESIRED, REASON, WORDS, CapacityPolicy
from serve_app.config import parse_scaling

Metrics = dict[str, dict[str, float]]


@dataclass
class Context:
    """The part of Ray Serve's AutoscalingContext that the policy reads."""

    aggregated_metrics: Metrics | None
    current_num_replicas: int = 1
    target_num_replicas: int = 1
    current_time: float = 0.0
    policy_state: dict[str, Any] = field(default_factory=dict)
    total_queued_requests: float = 0.0
    total_num_requests: float = 0.0
    capacity_adjusted_min_replicas: int = 1
    capacity_adjusted_max_replicas: int = 50
    raw_metrics: dict[str, dict[str, Any]] | None = None
    config: AutoscalingConfig | None = None


def policy(**scaling: float) -> CapacityPolicy:
    return CapacityPolicy(**parse_scaling({"start_s": 10} | scaling).model_dump())


def metrics(*replicas: dict[str, float]) -> Metrics:
    """What Ray Serve makes of each replica's numbers: by metric, then by replica."""
    by_name: Metrics = {}
    for index, numbers in enumerate(replicas):
        for name, value in numbers.items():
            by_name.setdefault(name, {})[f"r{index}"] = value
    return by_name


def replica(arrivals: float = 0.0, waiting: float = 0.0, **numbers: float) -> dict[str, float]:
    plain = {"running": 10.0, "max_running": 64.0, "capacity_per_s": 8.0}
    return plain | {"arrival_rate_per_s": arrivals, "waiting": waiting} | numbers


IDLE = replica(running=0.0)


def desired(scale: CapacityPolicy, context: Context) -> int:
    return scale(context)[0]


def test_traffic_takes_the_fleet_from_one_to_two_and_back() -> None:
    scale = policy(peak_s=300)
    assert desired(scale, Context(metrics(replica(arrivals=3.0)))) == 1
    high = metrics(replica(arrivals=10.0, waiting=30.0))
    assert desired(scale, Context(high, current_time=10.0)) == 2
    shared = metrics(replica(arrivals=1.5), replica(arrivals=1.5))
    stays = [desired(scale, Context(shared, 2, 2, float(t))) for t in range(20, 300, 10)]
    assert set(stays) == {2}
    assert desired(scale, Context(shared, 2, 2, 320.0)) == 1


def test_what_waits_outside_the_engines_counts() -> None:
    # 128 at a time, 20/s, 10/s come, and 5,000 wait for Ray Serve to let them in.
    held = metrics(replica(arrivals=10.0, capacity_per_s=20.0, running=128.0, max_running=128.0))
    assert desired(policy(), Context(held)) == 1
    # 0.58 to provide for + (5,000 - 10/s x 10 s) / 20 s / 20
    assert desired(policy(), Context(held, total_queued_requests=5000.0)) == 13


def test_without_requests_the_fleet_goes_to_its_minimum_and_no_further() -> None:
    def after(seconds: float, minimum: int, **context: float) -> int:
        scale = policy(peak_s=300)
        at = {"capacity_adjusted_min_replicas": minimum} | context
        for now_s in range(0, 300, 50):
            assert desired(scale, Context(metrics(IDLE), current_time=float(now_s), **at)) == 1
        return desired(scale, Context(metrics(IDLE), current_time=seconds, **at))

    assert after(299.0, minimum=0) == 1
    assert after(300.0, minimum=0) == 0
    assert after(300.0, minimum=1) == 1
    assert after(300.0, minimum=0, total_num_requests=0.1) == 1
    assert after(300.0, minimum=0, total_queued_requests=0.1) == 1


def test_at_zero_the_first_request_is_held_and_brings_a_replica() -> None:
    config = AutoscalingConfig(min_replicas=0, max_replicas=3, upscale_delay_s=30)
    staged = _apply_autoscaling_config(policy())

    def at_zero(target: int, ongoing: float) -> int:
        context = Context(None, 0, target, capacity_adjusted_min_replicas=0, config=config)
        context.total_num_requests = context.total_queued_requests = ongoing
        return staged(context)[0]

    assert at_zero(0, 0.0) == 0
    assert at_zero(0, 1.0) == 1  # at once, in spite of the delay
    assert at_zero(1, 1.0) == 1
    assert at_zero(1, 0.0) == 1  # its client went: the replica comes all the same


@pytest.mark.parametrize(
    "published", [None, {}, {"waiting": {"r0": 100.0}}, {"max_running": {"r0": 0.0}}]
)
def test_while_nothing_is_published_the_fleet_stays(published: Metrics | None) -> None:
    number, state = policy()(Context(published, 3, target_num_replicas=4))
    assert (number, state[REASON]) == (4, "unknown")


def sampled(*newest_s: float) -> dict[str, dict[str, Any]]:
    """Ray Serve's samples of each replica: the newest of this time."""
    point = [[SimpleNamespace(timestamp=at_s, value=0.0)] for at_s in newest_s]
    return {"running": {f"r{i}": series for i, series in enumerate(point)}}


def test_the_last_numbers_of_a_hung_replica_do_not_count_for_ever() -> None:
    # One of two hangs with 8/s arriving. Two pushes and a sample are 26 s by Ray Serve's defaults.
    scale = policy()
    both = metrics(replica(arrivals=8.0), replica(arrivals=8.0))
    at: dict[str, Any] = {"current_num_replicas": 2, "target_num_replicas": 2}
    assert desired(scale, Context(both, **at, raw_metrics=sampled(0.0, 0.0))) == 3
    # What three starts had use for (30 s) is kept besides.
    for now_s, number in ((10.0, 3), (26.0, 3), (27.0, 3), (60.0, 2)):
        context = Context(both, **at, current_time=now_s, raw_metrics=sampled(now_s, 0.0))
        assert desired(scale, context) == number, now_s


def test_a_clock_that_is_off_makes_no_replica_old() -> None:
    scale = policy()
    for now_s in (0.0, 20.0, 40.0):
        context = Context(
            metrics(replica(arrivals=10.0)),
            current_time=1e9 + now_s,
            raw_metrics=sampled(now_s),
        )
        assert desired(scale, context) == 2


def out_of_reach(waiting: float = 0.0, flag: float = 1.0) -> dict[str, float]:
    """40 run in steps longer than the SLA; neither cap nor capacity is published."""
    return {"running": 40.0, "waiting": waiting, "arrival_rate_per_s": 9.0} | {
        "sla_out_of_reach": flag
    }


@pytest.mark.parametrize("waiting", [0.0, 500.0])
def test_an_sla_out_of_reach_leaves_the_replicas_as_they_are(waiting: float) -> None:
    number, state = policy()(Context(metrics(out_of_reach(waiting)), 2, target_num_replicas=3))
    assert (number, state[REASON]) == (3, "out_of_reach")


def test_an_sla_out_of_reach_for_most_replicas_leaves_them_as_they_are() -> None:
    # The two others would have to be seven for all that comes.
    fleet = metrics(*[out_of_reach()] * 5, *[replica(arrivals=3.0)] * 2)
    number, state = policy()(Context(fleet, 7, 7))
    assert (number, state[REASON]) == (7, "out_of_reach")


def test_a_reach_that_flaps_asks_for_nothing() -> None:
    # At the edge a replica carries a tenth; by that 30 would be asked for.
    scale, edge = policy(), replica(arrivals=3.6, capacity_per_s=1.0)
    out, edges = metrics(*[out_of_reach()] * 7), metrics(*[edge] * 7)
    numbers = [
        desired(scale, Context(out if t % 40 < 20 else edges, 7, 7, float(t)))
        for t in range(0, 400, 10)
    ]
    assert set(numbers) == {7}


def test_an_sla_in_reach_for_a_minute_is_scaled_by_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "ray.serve")
    for name in ("ray", "ray.serve"):  # where Ray was imported, it keeps its log to itself
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    scale, fine, logged = policy(), metrics(replica(arrivals=10.0)), list[int]()
    said = [fine, metrics(out_of_reach()), metrics(out_of_reach()), fine, fine]
    numbers = []
    for published, now_s in zip(said, (0, 10, 20, 79, 80), strict=True):
        numbers.append(desired(scale, Context(published, 1, 1, float(now_s))))
        logged.append(len(caplog.records))
    assert numbers == [2, 1, 1, 1, 2]
    assert logged == [1, 2, 2, 2, 3]
    assert caplog.messages[1].startswith("Autoscaling stays at 1 replicas: the SLA is out of reach")
    assert "in reach again" in caplog.messages[2]


def test_it_decides_once_a_second_and_at_once_for_another_number_of_replicas() -> None:
    class Counted(Context):
        reads = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "aggregated_metrics":
                Counted.reads += 1
            return super().__getattribute__(name)

    scale, reads = policy(), []
    for now_s, target in ((0.0, 1), (0.1, 1), (0.9, 1), (1.0, 1), (1.1, 2), (0.5, 2)):
        scale(Counted(metrics(replica()), 1, target, now_s))
        reads.append(Counted.reads)
    assert reads == [1, 1, 1, 2, 3, 4]


def test_the_reason_is_in_the_policys_state() -> None:
    _, state = policy()(Context(metrics(replica(arrivals=10.0, capacity_error_frac=0.04))))
    assert state == {
        DESIRED: 2,
        REASON: "capacity",
        WORDS: "10.0 requests/s come and 11.3 are provided for; a replica carries 8.0 (+-4%) inside"
        " the SLA and should carry 100% of that",
    }


def test_an_error_leaves_the_number_as_it_is_and_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ray", "ray.serve"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    scale = policy()
    monkeypatch.setattr(scale._scaler, "decide", lambda _: 1 / 0)
    assert [scale(Context(metrics(replica()), 2, 3)) for _ in range(3)] == [(3, {})] * 3
    assert len(caplog.records) == 1


def test_the_policy_is_made_from_the_scaling_block() -> None:
    scale = CapacityPolicy(**parse_scaling(None).model_dump())
    assert desired(scale, Context(None)) == 1
