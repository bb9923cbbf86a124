"""The class behind the controller's name, without Ray: versions, configurations, switches."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from controller.errors import ConfigError, ReportError
from controller.fleet import actor
from controller.fleet.actor import (
    BatchController,
    _Metrics,
    keep_switches,
    kept_switches,
    known_switches,
)
from controller.records import to_wire
from controller.switch import Switch
from controller.version import VERSION
from tests.builders import batching, report


def wire(**overrides: Any) -> dict[str, Any]:
    return to_wire(report(**overrides))


def block(**keys: Any) -> dict[str, Any]:
    return batching(**keys).model_dump()


@pytest.mark.parametrize("version", ["0.0.9+1", None])
def test_a_report_of_other_code_is_refused_before_anything_is_read(version: str | None) -> None:
    controller = BatchController()
    with pytest.raises(ReportError) as refused:
        controller.exchange({"version": version, "mood": "good"}, {"key of tomorrow": 1})
    assert str(refused.value) == f"report.version: {version!r} is not allowed: only {VERSION!r}"
    assert controller.snapshot()["groups"] == {}


def test_a_configuration_that_is_refused_harms_no_other_replica() -> None:
    controller = BatchController()
    controller.exchange(wire(replica_id="a"), block())
    with pytest.raises(ConfigError, match="unknown key 'key of tomorrow'"):
        controller.exchange(wire(replica_id="b"), {**block(), "key of tomorrow": 1})
    assert controller.exchange(wire(replica_id="a", seq=2), block())["replicas"] == 1


def test_a_configuration_is_parsed_once_while_a_replica_is_under_it() -> None:
    controller = BatchController()
    for seq in (1, 2, 3):
        for replica_id, keys in (("a", {"lease_s": 5}), ("b", {"lease_s": 6})):
            controller.exchange(wire(replica_id=replica_id, seq=seq), block(**keys))
    first, second = controller._configs.values()
    assert (first.lease_s, second.lease_s) == (5, 6)
    assert {id(c) for c in controller._loop.configs()} == {id(first), id(second)}


def test_parsed_configurations_that_nobody_brings_any_more_are_dropped() -> None:
    controller = BatchController()
    for seq in range(1, 20):  # one replica whose configuration changes all the time
        controller.exchange(wire(seq=seq), block(lease_s=2 + seq))
        assert len(controller._configs) <= 2


def test_a_switch_goes_out_with_the_next_limits_and_is_logged(caplog):
    caplog.set_level("INFO", "controller")  # vLLM's server raises the root logger's to ERROR
    controller = BatchController()
    controller.exchange(wire(), block())
    for enforce, group in ((False, None), (True, "g")):
        controller.switch(enforce, group)
    assert caplog.messages[-2:] == [
        "Control is switched off for all groups.",
        "Control is switched on for group g.",
    ]
    told = controller.exchange(wire(seq=2), block())["switches"]
    assert [(one["enforce"], one["group"]) for one in told] == [(False, None), (True, "g")]


def test_what_replicas_took_over_of_a_switch_is_told_in_primitives() -> None:
    controller = BatchController()
    controller.exchange(wire(replica_id="a"), block(enforce=False))
    made = controller.switch(False, "g")
    controller.exchange(wire(replica_id="b", enforced=False, switches=[made]), block())
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(controller.switches()))
    assert told["up_s"] >= 0
    assert told["switches"] == [made]
    taken = [
        {key: value for key, value in one.items() if key != "age_s"} for one in told["replicas"]
    ]
    assert taken == [
        {"group": "g", "replica": "a", "epoch_ms": 0, "enforced": True, "configured": False},
        {
            "group": "g",
            "replica": "b",
            "epoch_ms": made["epoch_ms"],
            "enforced": False,
            "configured": True,
        },
    ]
    assert told["refused"] == []
    with pytest.raises(ReportError):
        controller.exchange(wire(replica_id="c") | {"version": "older"}, block())
    (refused,) = controller.switches()["refused"]
    assert (refused["group"], refused["replica"]) == ("g", "c")


def test_one_that_does_not_answer_hides_no_switch_of_the_others() -> None:
    off, on = Switch(5, enforce=False), Switch(7, enforce=True, group="a")

    def silent() -> Any:
        raise TimeoutError

    others = {
        "v1": lambda: {"switches": [to_wire(off)]},
        "v2": silent,
        "v3": lambda: {"other": "code"},
        "v4": lambda: {"switches": [to_wire(on)]},
    }
    assert known_switches(others) == (off, on)


def test_a_controller_goes_by_the_switches_that_the_clusters_store_keeps(monkeypatch):
    store: dict[tuple[str, str], bytes] = {}

    def put(key: str, value: str, namespace: str) -> None:
        store[namespace, key] = value.encode()

    monkeypatch.setattr(actor, "_internal_kv_get", lambda k, namespace: store.get((namespace, k)))
    monkeypatch.setattr(actor, "_internal_kv_put", put)
    monkeypatch.setattr(actor, "running_controllers", dict)
    # Of this module alone: a log filter of Ray's asks too, and would look for a cluster.
    monkeypatch.setattr(actor, "ray", SimpleNamespace(is_initialized=lambda: True))
    of_other_code = Switch(5, enforce=True, group="a")
    keep_switches((of_other_code,))
    made = BatchController().switch(False, "g")
    assert [to_wire(one) for one in kept_switches()] == [to_wire(of_other_code), made]
    assert BatchController().switches()["switches"] == [to_wire(of_other_code), made]


def test_a_group_that_is_gone_is_told_once() -> None:
    # Ray drops a series that nobody sets any more.
    told: list[tuple[int, str]] = []
    metrics = _Metrics()
    metrics._replicas = SimpleNamespace(set=lambda n, tags: told.append((n, tags["group"])))
    for now_s, sizes in ((0.0, {"a": 2, "b": 1}), (10.0, {"b": 1}), (20.0, {"b": 1})):
        loop: Any = SimpleNamespace(sizes=lambda now=sizes: now)
        metrics.exchanged(loop, now_s)
    assert sorted(told[:2]) == [(1, "b"), (2, "a")]
    assert sorted(told[2:4]) == [(0, "a"), (1, "b")]
    assert told[4:] == [(1, "b")]
