"""What the console pulls of the controller: the snapshot, less what nobody looks at."""

import pickle
from dataclasses import replace

from controller.fleet.packed_snapshot import LEFT_OUT, opened, packed_snapshot_of
from controller.records import BatchLimits, ReplicaReport
from tests.unit.serve_app.snapshots import fleet


def test_what_comes_out_is_the_snapshot_less_what_nobody_looks_at() -> None:
    snapshot = fleet()
    seen = opened(pickle.loads(pickle.dumps(packed_snapshot_of(snapshot))))

    assert seen["version"] == snapshot["version"]
    assert seen["refused"] == snapshot["refused"]
    assert seen["switches"] == snapshot["switches"]
    assert list(seen["groups"]) == list(snapshot["groups"])
    for name, group in snapshot["groups"].items():
        taken = seen["groups"][name]
        assert (taken["policy"], taken["on"]) == (group["policy"], group["on"])
        assert list(taken["replicas"]) == list(group["replicas"])
        for replica_id, one in group["replicas"].items():
            report = replace(one["report"], **LEFT_OUT[ReplicaReport])
            limits = replace(one["limits"], **LEFT_OUT[BatchLimits])
            assert taken["replicas"][replica_id] == {
                "age_s": one["age_s"],
                "batching": one["batching"],
                "report": report,
                "limits": limits,
            }


def test_it_is_made_of_plain_tuples_and_each_configuration_once() -> None:
    glance = packed_snapshot_of(fleet())
    policies = [config.policy for config in glance["configs"]]
    assert policies == ["adaptive", "adaptive", "paper", "static", "adaptive"]
    for group in glance["groups"].values():
        for replica_id, _, config, report, limits in group["replicas"]:
            assert report[0] == replica_id
            assert glance["configs"][config]
            assert type(report) is type(limits) is tuple
