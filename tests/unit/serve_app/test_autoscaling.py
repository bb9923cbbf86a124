"""The autoscaling policy, fed with a handwritten context: numbers in, replicas out, and told."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.serve._private.autoscaling_state import _apply_autoscaling_config
from ray.serve.config import AutoscalingConfig

from serve_app.autoscaling import REASON, CapacityPolicy, _through_factors
from serve_app.config import parse_scaling
from tests.autoscaling import Context, metrics


def policy(**scaling: float) -> CapacityPolicy:
    return CapacityPolicy(**parse_scaling({"start_s": 10} | scaling).model_dump())


def replica(arrivals: float = 0.0, waiting: float = 0.0, **numbers: float) -> dict[str, float]:
    plain = {"running": 10.0, "max_running": 64.0, "capacity_per_s": 8.0}
    return plain | {"arrival_rate_per_s": arrivals, "waiting": waiting} | numbers


def desired(scale: CapacityPolicy, context: Context) -> int:
    return scale(context)[0]


def test_at_zero_the_first_request_is_held_and_brings_a_replica():
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
def test_while_nothing_is_published_the_fleet_stays(published):
    number, state = policy()(Context(published, 3, target_num_replicas=4))
    assert (number, state[REASON]) == (4, "unknown")


def sampled(*newest_s: float) -> dict[str, dict[str, Any]]:
    """Ray Serve's samples of each replica: the newest of this time."""
    point = [[SimpleNamespace(timestamp=at_s, value=0.0)] for at_s in newest_s]
    return {"running": {f"r{i}": series for i, series in enumerate(point)}}


def test_the_last_numbers_of_a_hung_replica_do_not_count_for_ever():
    # One of two hangs with 8/s arriving. Two pushes and a sample are 26 s by Ray Serve's defaults.
    scale = policy()
    both = metrics(replica(arrivals=8.0), replica(arrivals=8.0))
    at: dict[str, Any] = {"current_num_replicas": 2, "target_num_replicas": 2}
    assert desired(scale, Context(both, **at, raw_metrics=sampled(0.0, 0.0))) == 3
    # What three starts had use for (30 s) is kept besides.
    for now_s, number in ((10.0, 3), (26.0, 3), (27.0, 3), (60.0, 2)):
        context = Context(both, **at, current_time=now_s, raw_metrics=sampled(now_s, 0.0))
        assert desired(scale, context) == number, now_s


def out_of_reach(waiting: float = 0.0, flag: float = 1.0) -> dict[str, float]:
    """40 run in steps longer than the SLA; neither cap nor capacity is published."""
    return {"running": 40.0, "waiting": waiting, "arrival_rate_per_s": 9.0} | {
        "sla_out_of_reach": flag
    }


def test_an_sla_in_reach_for_a_minute_is_scaled_by_again(caplog, monkeypatch):
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


def test_an_error_leaves_the_number_as_it_is_and_is_logged_once(caplog, monkeypatch):
    for name in ("ray", "ray.serve"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    scale = policy()
    monkeypatch.setattr(scale._scaler, "decide", lambda _: 1 / 0)
    assert [scale(Context(metrics(replica()), 2, 3)) for _ in range(3)] == [(3, {})] * 3
    assert len(caplog.records) == 1


# --- Ray Serve's factors around the policy: they change steps, not a number that is to stay


def config(**settings: Any) -> AutoscalingConfig:
    at_once = {"upscale_delay_s": 0, "downscale_delay_s": 0}
    return AutoscalingConfig(**({"min_replicas": 1, "max_replicas": 40} | at_once | settings))


def looks(target: int, current: int, rates: list[float], n: int = 20, **settings: Any) -> list[int]:
    """The target at each of Ray Serve's looks, ten a second; nothing starts meanwhile."""
    staged = _apply_autoscaling_config(policy(start_s=100))
    seen = metrics(*(replica(arrivals=per_s) for per_s in rates))
    targets, state = [], {}
    for look in range(n):
        context = Context(seen, current, target, look / 10, state, config=config(**settings))
        target, state = staged(context)
        targets.append(int(target))
    return targets


@pytest.mark.parametrize("key", ["upscaling_factor", "upscale_smoothing_factor"])
def test_a_number_that_is_to_stay_stays_while_replicas_start(key):
    """Four run and six were asked for; nothing more is wanted."""
    assert set(looks(6, 4, [1.0] * 4, **{key: 2.0})) == {6}
    assert set(looks(6, 4, [], **{key: 1.25})) == {6}  # nothing is known of them


@given(
    desired=st.integers(0, 60),
    target=st.integers(0, 60),
    current=st.integers(0, 60),
    up=st.sampled_from([0.01, 0.3, 0.8, 1.0, 1.25, 2.0, 10.0]),
    down=st.sampled_from([0.01, 0.3, 0.8, 1.0, 1.25, 2.0]),
)
def test_what_ray_makes_of_it_is_on_the_same_side_of_the_target(desired, target, current, up, down):
    given = config(min_replicas=0, upscaling_factor=up, downscaling_factor=down, max_replicas=60)
    context: Any = Context(None, current, target, config=given)
    number = _through_factors(desired, context)
    made = _apply_autoscaling_config(lambda ctx: (number, {}))(context)[0]
    if desired == target:
        assert made == target
    elif desired > target:
        assert made >= target
    else:
        assert made <= target
    if up == down == 1 or current == 0:
        assert number == desired


# --- what it tells others


def test_who_cannot_tell_decides_all_the_same(monkeypatch):
    scale: CapacityPolicy = policy()
    monkeypatch.setattr(scale._export, "tell", lambda *_: 1 / 0)
    busy = Context(metrics(replica(arrivals=10.0)))
    assert scale(busy)[0] == 2
    assert scale(SimpleNamespace(current_num_replicas=4))[0] == 4


def test_it_decides_once_a_second_and_at_once_for_another_number_of_replicas():
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
