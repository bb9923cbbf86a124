"""``brimful check`` on what a RayService's pods can give to its Serve configuration."""

from typing import Any

import pytest

from serve_app.checks.findings import Findings
from serve_app.checks.manifest import check_documents
from tests.manifests import (
    CLUSTER,
    HEAD,
    HEAD_PLACE,
    WORKER,
    WORKER_PLACE,
    WORKERS,
    WORKERS_PLACE,
    with_serve,
    without,
)
from tests.serve_configs import APP, ENTRY, put

PLACE = "spec.serveConfigV2.applications[0]"
NAME = "BrimfulServer:llama-3_1-8b"
PORT = ("http_options", "port")


def found(*services: dict[str, Any]) -> Findings:
    findings = Findings()
    check_documents(list(services), findings)
    return findings


def test_a_replica_that_no_group_can_hold_is_named(service):
    sharded = with_serve(service, (*ENTRY, "engine_kwargs", "tensor_parallel_size"), 16)
    assert found(sharded).problems == [
        f"{PLACE}: a replica of {NAME} asks for 16 GPU; all groups together can have 8 GPU"
    ]
    eight = with_serve(service, (*ENTRY, "engine_kwargs", "tensor_parallel_size"), 8)
    assert found(eight).problems == []
    alone = put(eight, (*CLUSTER, "enableInTreeAutoscaling"), False)
    assert found(alone).problems == [
        f"{PLACE}: a replica of {NAME} asks for 8 GPU; all groups together can have 1 GPU"
    ]


@pytest.mark.parametrize(
    ("sizes", "there"),
    [
        ({"minReplicas": 8}, 8),  # of fewer replicas, or none, KubeRay starts as many
        ({"minReplicas": 8, "replicas": None}, 8),
        ({"replicas": 5}, 5),
        ({"replicas": 9}, 8),
        ({"replicas": 0, "minReplicas": 0}, 0),
        ({"minReplicas": 8, "suspend": True}, 0),
    ],
)
def test_a_group_that_does_not_grow_has_what_kuberay_starts(service, sizes, there):
    alone = put(service, (*CLUSTER, "enableInTreeAutoscaling"), False)
    for key, size in sizes.items():
        place = (*WORKERS, key)
        alone = without(alone, place) if size is None else put(alone, place, size)
    asking = with_serve(alone, (*ENTRY, "engine_kwargs", "tensor_parallel_size"), 8)
    problems = found(asking).problems
    if there == 8:
        assert problems == []
    else:
        assert problems[0].endswith(f" {there} GPU")


def test_a_replica_that_has_to_be_on_one_node_is_held_against_one(service):
    packed = with_serve(service, (*ENTRY, "engine_kwargs", "tensor_parallel_size"), 2)
    bundles = {"bundle_per_worker": {"GPU": 1}, "strategy": "STRICT_PACK"}
    packed = with_serve(packed, (*ENTRY, "placement_group_config"), bundles)
    (problem,) = found(packed).problems
    assert problem == (
        f"{PLACE}: a replica of {NAME} asks for 1 CPU and 2 GPU on one node; the groups have head:"
        " 0 CPU and 0 GPU; h100: 12 CPU and 1 GPU"
    )
    two = {"limits": {"cpu": "12", "memory": "96Gi", "nvidia.com/gpu": "2"}}
    assert found(put(packed, (*WORKER, "resources"), two)).problems == []


def test_a_replica_that_wants_what_no_node_has_is_named(service):
    disk = ("deployment_config", "ray_actor_options", "resources")
    asking = with_serve(service, (*ENTRY, *disk), {"disk": 2})
    (problem,) = found(asking).problems
    assert "1 CPU and 1 GPU and 2 disk on one node" in problem
    start = put(asking, (*WORKERS, "rayStartParams"), {"resources": '"{\\"disk\\": 2}"'})
    assert found(start).problems == []
    field = put(asking, (*WORKERS, "resources"), {"disk": "2"})
    assert found(field).problems == []


def test_more_replicas_than_there_is_room_for_are_named(service):
    scaling = (*ENTRY, "deployment_config", "autoscaling_config")
    least = with_serve(service, (*scaling, "min_replicas"), 9)
    least = with_serve(least, (*scaling, "max_replicas"), 9)
    assert found(least).problems == [
        "spec.serveConfigV2: the replicas at least ask for 9 GPU of 8 in all groups"
    ]
    most = found(with_serve(service, (*scaling, "max_replicas"), 12))
    assert most.problems == []
    assert f"{PLACE}: {NAME} may have 12 replicas, and the groups have room for 8" in most.notes


def test_an_override_of_their_number_counts(service):
    more = with_serve(
        service,
        (*APP, "deployments"),
        [{"name": NAME, "num_replicas": 9, "autoscaling_config": None}],
    )
    assert any("ask for 9 GPU of 8" in line for line in found(more).problems)


def test_a_pod_without_limits_has_what_its_node_has(service):
    unbound = put(service, (*WORKER, "resources"), {})
    unbound = with_serve(unbound, (*ENTRY, "engine_kwargs", "tensor_parallel_size"), 16)
    assert found(unbound).problems == []


def test_serve_on_a_port_that_pods_do_not_name_is_named(service):
    moved = with_serve(service, PORT, 9000)
    says = "8000 is not allowed: http_options.port is 9000"
    assert found(moved).problems == [
        f"{HEAD_PLACE}.ports.serve: {says}",
        f"{WORKER_PLACE}.ports.serve: {says}",
        f"{WORKER_PLACE}.readinessProbe: {says}",
    ]


def test_a_pod_that_names_no_port_is_reached_at_8000(service):
    bare = put(service, (*WORKER, "ports"), [])
    assert found(bare).problems == []
    moved = with_serve(bare, PORT, 9000)
    problems = found(put(moved, (*HEAD, "ports"), [])).problems
    assert any(
        line.startswith(f"{HEAD_PLACE}.ports: Services go to port 8000 where none is named")
        for line in problems
    )


def test_the_head_alone_has_to_name_serves_port_where_workers_have_a_probe_of_their_own(service):
    moved = with_serve(service, PORT, 9000)
    moved = put(moved, (*HEAD, "ports"), [{"name": "serve", "containerPort": 9000}])
    moved = put(moved, (*WORKER, "ports"), [])
    probe = put(moved, (*WORKER, "readinessProbe"), {"exec": {"command": ["true"]}})
    assert found(probe).problems == []
    (problem,) = found(without(moved, (*WORKER, "readinessProbe"))).problems
    assert problem.startswith(f"{WORKER_PLACE}.ports: KubeRay's probe asks port 8000")


@pytest.mark.parametrize("grace", [30, None])
def test_a_pod_that_ends_before_its_streams_is_noted(service, grace):
    place = (*WORKERS, "template", "spec")
    short = put(service, (*place, "terminationGracePeriodSeconds"), grace)
    if grace is None:
        del short["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"][
            "terminationGracePeriodSeconds"
        ]
    (note,) = found(short).notes
    assert note == (
        f"{WORKERS_PLACE}.template.spec.terminationGracePeriodSeconds: 30 is below"
        " graceful_shutdown_timeout_s (1800): streams are cut when a node is drained"
    )
    assert found(service).notes == []


def test_a_node_that_drains_for_less_than_its_streams_is_noted(service):
    command = (*WORKER, "lifecycle", "preStop", "exec", "command")
    drained = ["bash", "-c", "ray drain-node --deadline-remaining-seconds 1800; sleep 1800"]
    (note,) = found(put(service, command, drained)).notes
    assert note == (
        f"{WORKERS_PLACE}.template.spec: a drain of 1800 s is no longer than"
        " graceful_shutdown_timeout_s (1800): replicas stop at once, before others have started"
    )


def test_one_replica_without_room_for_a_second_is_noted(service):
    scaling = (*ENTRY, "deployment_config", "autoscaling_config")
    one = put(with_serve(service, (*scaling, "max_replicas"), 1), (*WORKERS, "maxReplicas"), 1)
    (note,) = found(one).notes
    assert note == (
        f"{PLACE}: {NAME} may have one replica, and no room for a second: while it is redeployed"
        " nobody is served, until its last stream has ended (graceful_shutdown_timeout_s: 1800) and"
        " another has started"
    )
    assert found(with_serve(service, (*scaling, "max_replicas"), 1)).notes == []


MANAGED = {
    "creationTimestamp": "2025-08-22T10:00:00Z",
    "generation": 1,
    "resourceVersion": "1",
    "uid": "00000000-0000-4000-8000-000000000000",
    "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
}


def test_an_object_that_was_exported_from_a_cluster_passes(service):
    exported = {
        **service,
        "metadata": {**service["metadata"], **MANAGED},
        "status": {"activeServiceStatus": {}, "numServeEndpoints": 0},
    }
    assert found(exported).problems == []
    listed = {"apiVersion": "v1", "kind": "List", "items": [exported, exported]}
    assert found(listed).problems == []
    assert len(found(listed).summary) == 2
