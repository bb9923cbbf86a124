"""The class behind the controller's name: versions, configurations, switches, refusals."""

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from controller.errors import ConfigError, ReportError
from controller.fleet import actor
from controller.fleet.actor import (
    BatchController,
    keep_switches,
    kept_switches,
)
from controller.fleet.packed_snapshot import LEFT_OUT, opened, packed_snapshot_of
from controller.fleet.refusals import Refusals
from controller.records import BatchLimits, ReplicaReport, to_wire
from controller.switch import Switch
from controller.version import VERSION
from tests.builders import batching, report
from tests.unit.serve_app.snapshots import fleet


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


def test_a_switch_goes_out_with_the_next_limits() -> None:
    controller = BatchController()
    controller.exchange(wire(), block())
    for enforce, group in ((False, None), (True, "g")):
        controller.switch(enforce, group)
    told = controller.exchange(wire(seq=2), block())["switches"]
    assert [(one["enforce"], one["group"]) for one in told] == [(False, None), (True, "g")]


def test_a_controller_goes_by_the_switches_that_the_clusters_store_keeps(monkeypatch):
    store: dict[tuple[str, str], bytes] = {}

    def put(key: str, value: str, namespace: str) -> None:
        store[namespace, key] = value.encode()

    monkeypatch.setattr(actor, "_internal_kv_get", lambda k, namespace: store.get((namespace, k)))
    monkeypatch.setattr(actor, "_internal_kv_put", put)
    # Of this module alone: a log filter of Ray's asks too, and would look for a cluster.
    monkeypatch.setattr(actor, "ray", SimpleNamespace(is_initialized=lambda: True))
    of_other_code = Switch(5, enforce=True, group="a")
    keep_switches((of_other_code,))
    made = BatchController().switch(False, "g")
    assert [to_wire(one) for one in kept_switches()] == [to_wire(of_other_code), made]
    assert BatchController().switches()["switches"] == [to_wire(of_other_code), made]


@pytest.mark.parametrize("nonsense", [None, "text", {}, {"group": ["g"], "replica_id": None}])
def test_whatever_was_sent_has_a_line(nonsense: Any) -> None:
    refusals = Refusals()
    refusals.refused(nonsense, ValueError(), 1.0)
    (one,) = refusals.snapshot(1.0)
    assert one["reason"] == "ValueError"
    assert isinstance(one["group"], str)
    assert isinstance(one["replica"], str)


def test_the_controller_shows_whom_it_refuses_until_it_accepts_a_report() -> None:
    controller, block = BatchController(), batching().model_dump()
    with pytest.raises(ReportError):
        controller.exchange({**to_wire(report(replica_id="a")), "version": "0.0.9"}, block)
    with pytest.raises(ConfigError):
        controller.exchange(to_wire(report(replica_id="b")), {"mood": "good"})
    refused = controller.snapshot()["refused"]
    assert [(one["replica"], one["reason"][:22]) for one in refused] == [
        ("a", "report.version: '0.0.9"),
        ("b", "batching: unknown key "),
    ]
    controller.exchange(to_wire(report(replica_id="b", seq=2)), block)
    assert [one["replica"] for one in controller.snapshot()["refused"]] == ["a"]


def test_what_the_console_pulls_is_the_snapshot_less_what_nobody_looks_at() -> None:
    snapshot = fleet()
    seen = opened(pickle.loads(pickle.dumps(packed_snapshot_of(snapshot))))
    for name, group in snapshot["groups"].items():
        for replica_id, one in group["replicas"].items():
            kept = {
                "age_s": one["age_s"],
                "batching": one["batching"],
                "report": replace(one["report"], **LEFT_OUT[ReplicaReport]),
                "limits": replace(one["limits"], **LEFT_OUT[BatchLimits]),
            }
            assert seen["groups"][name]["replicas"].pop(replica_id) == kept
