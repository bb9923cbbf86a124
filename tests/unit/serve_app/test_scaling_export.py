"""What autoscaling tells others."""

import gc
import json
import threading
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import ray

from serve_app.autoscaling import CapacityPolicy
from serve_app.scaling_export import ScalingExport, Told, internal_kv, read_told
from tests.unit.serve_app.snapshots import SCALED
from tests.unit.serve_app.test_autoscaling import Context, metrics, policy, replica


def test_the_decision_in_a_line() -> None:
    assert SCALED.sentence() == (
        "Autoscaling of BrimfulServer:m of llm: 3 replicas wanted, 2 running: 20.0 requests/s come,"
        " a replica carries 8.0 (+-4%) inside the SLA."
    )


def writers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "brimful-scaling"]


def test_where_ray_does_not_run_nothing_is_told() -> None:
    assert not ray.is_initialized()
    assert policy()(Context(metrics(replica(arrivals=10.0))))[0] == 2
    assert writers() == []


def test_its_thread_ends_with_the_policy() -> None:
    export = ScalingExport()
    export._start()
    (thread,) = writers()
    del export
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_who_cannot_tell_decides_all_the_same(monkeypatch) -> None:
    scale: CapacityPolicy = policy()
    monkeypatch.setattr(scale._export, "tell", lambda *_: 1 / 0)
    busy = Context(metrics(replica(arrivals=10.0)))
    assert scale(busy)[0] == 2
    assert scale(SimpleNamespace(current_num_replicas=4))[0] == 4


def test_what_is_told_is_the_decision_with_its_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ScalingExport, "_start", lambda self: None)  # there is no store
    scale = policy()
    for now_s in (0.0, 4.0, 5.0):
        context = Context(metrics(replica(arrivals=10.0)), current_time=now_s)
        context.app_name, context.deployment_name = "llm", "d"  # type: ignore[attr-defined]
        assert scale(context)[0] == 2
    lines = scale._export._lines
    first, second = lines.get_nowait(), lines.get_nowait()
    assert lines.empty()  # every 5 s at most
    assert first is not None and second is not None
    assert (first.application, first.deployment, first.desired, first.target) == ("llm", "d", 2, 1)
    assert (first.reason, first.capacity_per_s, first.unix_s) == ("capacity", 8.0, 0.0)
    assert second.unix_s == 5.0
    assert Told(**json.loads(json.dumps(asdict(first)))) == first


def test_a_clock_that_went_back_holds_no_line_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ScalingExport, "_start", lambda self: None)
    scale, written = policy(), []
    for now_s in (3600.0, 2.0, 4.0, 7.0):
        context = Context(metrics(replica(arrivals=10.0)), current_time=now_s)
        context.app_name, context.deployment_name = "llm", "d"  # type: ignore[attr-defined]
        scale(context)
    while not scale._export._lines.empty():
        told = scale._export._lines.get_nowait()
        assert told is not None
        written.append(told.unix_s)
    assert written == [3600.0, 2.0, 7.0]


def test_lines_of_another_minute_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # One that lies ahead was written by a clock that is off, or has gone back since.
    said = {at_s: replace(SCALED, unix_s=1000.0 + at_s) for at_s in (-61.0, -60.0, 60.0, 61.0)}
    store = {f"scaling:{k}": json.dumps(asdict(told)) for k, told in enumerate(said.values())}
    monkeypatch.setattr(internal_kv, "_internal_kv_list", lambda prefix, namespace: list(store))
    monkeypatch.setattr(internal_kv, "_internal_kv_get", lambda key, namespace: store[key])
    assert read_told(1000.0) == [said[-60.0], said[60.0]]


def test_a_capacity_that_is_not_known_any_more_is_not_shown_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: dict[str, float] = {}

    def gauge(_: ScalingExport, name: str, tags: tuple[str, ...]) -> SimpleNamespace:
        return SimpleNamespace(set=lambda value, tags: shown.update({name: value}))

    monkeypatch.setattr(ScalingExport, "_gauge", gauge)
    export, name = ScalingExport(), "brimful_scaling_capacity_requests_per_second"
    export._measure(SCALED)
    assert shown[name] == 8.0
    export._measure(replace(SCALED, capacity_per_s=None))
    assert shown[name] == 0.0
