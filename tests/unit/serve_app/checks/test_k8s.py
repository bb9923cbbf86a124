"""The RayService of k8s/base, and what ``brimful check`` says of a broken one or little room."""

import re
from typing import Any

import pytest
import yaml

from serve_app.checks.findings import Findings
from serve_app.checks.manifest import check_documents
from serve_app.environment import DIRECT_STREAMING, HA_PROXY
from tests.manifests import (
    BASE,
    CLUSTER,
    HEAD,
    HEAD_PLACE,
    ROOT,
    SERVE_PLACE,
    WORKER,
    WORKER_PLACE,
    WORKERS,
    WORKERS_PLACE,
    load,
    set_env,
    with_serve,
    without,
)
from tests.serve_configs import ENTRY, at, put, refused, unknown
from tests.serve_configs import Path as KeyPath

START_S = 600  # weights over a network and compiled kernels
MISSING = "required key is missing"
SERVE = ("spec", "serveConfigV2")
POD = (*WORKERS, "template", "spec")


def test_the_base_passes_and_is_described(check):
    found = check((BASE / "rayservice.yaml").read_text())
    assert (found.problems, found.notes) == ([], [])
    assert found.summary == [
        "llama at /: model llama-3.1-8b, policy adaptive, 50 ms between tokens and 2000 ms to the"
        " first token at p99, 4 to 1024 running, 1 to 8 replicas"
    ]


def test_the_base_gives_every_replica_a_worker_and_streams_time_to_end(service):
    (app,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    options = app["args"]["llm_configs"][0]["deployment_config"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    scaling, pod = options["autoscaling_config"], group["template"]["spec"]
    assert group["minReplicas"] <= scaling["min_replicas"]
    assert group["maxReplicas"] == scaling["max_replicas"]
    (worker,) = pod["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    told = worker["lifecycle"]["preStop"]["exec"]["command"][-1]
    deadline_s = int(re.search(r"drain-node .*seconds (\d+)", told)[1])
    # Serve starts others first only while more than the drain is left until the deadline.
    assert deadline_s >= START_S + options["graceful_shutdown_timeout_s"]
    assert int(re.search(r"seq (\d+)", told)[1]) >= deadline_s
    assert pod["terminationGracePeriodSeconds"] > deadline_s


def test_kustomize_names_the_image_of_every_ray_container_and_it_has_the_manifests_ray(service):
    kustomization = load(BASE / "kustomization.yaml")
    assert kustomization["resources"] == ["rayservice.yaml"]
    (image,) = kustomization["images"]
    cluster = service["spec"]["rayClusterConfig"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {pod["template"]["spec"]["containers"][0]["image"] for pod in pods}
    assert images == {image["name"]}
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"ARG RAY_VERSION={cluster['rayVersion']}\n" in dockerfile
    assert "haproxy_binary())')\" -v" in dockerfile


BROKEN: list[tuple[KeyPath, Any, list[str]]] = [
    (("apiVersion",), "ray.io/v1alpha1",
     [refused("apiVersion", "ray.io/v1alpha1", "must be 'ray.io/v1'")]),
    (("metadata",), {}, [f"metadata.name: {MISSING}"]),
    (("spec", "serveConfig"), "", [unknown("spec", "serveConfig", "serveConfigV2")]),
    ((*WORKER, "imagePullPolic"), "Always",
     [unknown(WORKER_PLACE, "imagePullPolic", "imagePullPolicy")]),
    ((*WORKER, "resources", "limits", "memory"), "96 Gi",
     [f"{WORKER_PLACE}.resources.limits.memory: "]),
    ((*WORKERS, "minReplicas"), 9, [refused(f"{WORKERS_PLACE}.maxReplicas", 8, "minReplicas is")]),
    ((*WORKERS, "maxReplicas"), "8",
     [refused(f"{WORKERS_PLACE}.maxReplicas", "8", "must be integer")]),
    ((*CLUSTER, "workerGroupSpecs"), [],
     ["spec.rayClusterConfig.workerGroupSpecs: required: at least one group of workers"]),
    ((*POD, "containers"), [],
     [f"{WORKERS_PLACE}.template.spec.containers: must hold the container that Ray runs in"]),
    ((*HEAD, "env", 0, "value"), 1,
     [refused(f"{HEAD_PLACE}.env[0].value", 1, "must be a string (quote it)")]),
    (SERVE, "applications: [", [f"{SERVE_PLACE}: line 1, column 16: not "]),
    (SERVE, "a: 1\na: 2\n", [f"{SERVE_PLACE}: line 2: a: set twice, first on line 1"]),
    (
        SERVE,
        {"applications": []},
        [
            f"{SERVE_PLACE}: must be a string (quote it)",
            f"{SERVE_PLACE}: required: a Serve configuration as a block of text (`|`)",
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "messages"), BROKEN, ids=[str(path[-1]) for path, _, _ in BROKEN]
)
def test_a_fault_in_the_manifest_is_named_with_its_place(check, service, path, value, messages):
    for problem, message in zip(check(put(service, path, value)).problems, messages, strict=True):
        assert problem.startswith(message)


def test_an_env_that_is_no_list_is_named(check, service):
    found = check(put(service, (*WORKER, "env"), True)).problems
    assert refused(f"{WORKER_PLACE}.env", True, "must be a list") in found


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "rayClusterConfig"),
        (*CLUSTER, "headGroupSpec"),
        (*POD, "containers"),
        (*WORKER, "name"),
    ],
    ids=lambda path: str(path[-1]),
)
def test_a_key_that_is_needed_and_missing_is_named(check, service, path):
    says = re.compile(rf"(^|\.){path[-1]}: {MISSING}($|;)")
    assert any(says.search(problem) for problem in check(without(service, path)).problems)


def test_the_embedded_config_is_checked_down_to_our_blocks(check, service):
    broken = with_serve(service, at("batching.sla.itl_msec"), 3)
    broken = with_serve(broken, at("deployment_config.max_queud_requests"), 3)
    entry = f"{SERVE_PLACE}.applications[0].args.llm_configs[0]"
    assert check(broken).problems == [
        unknown(f"{entry}.deployment_config", "max_queud_requests", "max_queued_requests"),
        unknown(f"{entry}.batching.sla", "itl_msec", "itl_ms"),
    ]


def test_a_model_path_in_the_image_is_not_looked_for_here(check, service):
    path = at("model_loading_config.model_source")
    assert check(with_serve(service, path, "/models/llama")).problems == []


def test_another_ray_version_is_noted(check, service):
    found = check(put(service, (*CLUSTER, "rayVersion"), "2.9.0"))
    assert found.problems == []
    assert found.notes == ["spec.rayClusterConfig.rayVersion: '2.9.0'; checked here by Ray 2.60"]


def test_what_kuberay_does_without_may_be_missing(check, service):
    """As in KubeRay's own samples: sizes of a group, the version, the switches, a key without a
    value.
    """
    for path in ((*WORKERS, "minReplicas"), (*WORKERS, "maxReplicas"), (*CLUSTER, "rayVersion")):
        service = without(service, path)
    off = {HA_PROXY: None, DIRECT_STREAMING: None}
    service = set_env(set_env(service, HEAD, **off), WORKER, **off)
    found = check(put(service, (*WORKERS, "template", "metadata"), None))
    assert found.problems == []
    version, ingress = found.notes[:2]
    assert version == "spec.rayClusterConfig.rayVersion: is missing; checked here by Ray 2.60"
    assert ingress.startswith("spec.rayClusterConfig: Ray's plain ingress answers")


def test_only_the_rayservices_among_several_documents_are_checked(check, service):
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    broken = put(service, ("spec", "suspende"), True)
    assert check(yaml.dump_all([other, service, other])).problems == []
    assert check(yaml.dump_all([other, broken])).problems == [
        f"document 2: {unknown('spec', 'suspende', 'suspend')}"
    ]
    assert check(other).problems == ["kind: there is no RayService in it, only ConfigMap"]


def test_an_object_that_was_exported_from_a_cluster_passes(check, service):
    managed = {
        "creationTimestamp": "2025-08-22T10:00:00Z",
        "generation": 1,
        "resourceVersion": "1",
        "uid": "00000000-0000-4000-8000-000000000000",
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
    }
    exported = {
        **service,
        "metadata": {**service["metadata"], **managed},
        "status": {"activeServiceStatus": {}, "numServeEndpoints": 0},
    }
    assert check(exported).problems == []
    listed = check({"apiVersion": "v1", "kind": "List", "items": [exported, exported]})
    assert (listed.problems, len(listed.summary)) == ([], 2)


# --- switches and cards of Ray's containers


@pytest.mark.parametrize(
    ("container", "place"), [(HEAD, HEAD_PLACE), (WORKER, WORKER_PLACE)], ids=["head", "worker"]
)
def test_a_ray_container_without_a_switch_is_named(check, service, container, place):
    switch = HA_PROXY
    assert check(set_env(service, container, **{switch: None})).problems == [
        f'{place}.env: {switch} is missing; set it to "1" for direct streaming, the default way'
        ' in, or to "0" for the plain ingress'
    ]


@pytest.mark.parametrize(
    ("switch", "value", "why"),
    [
        (DIRECT_STREAMING, "0", 'the head has "1": must be the same'),
        (HA_PROXY, "true", 'must be "0" or "1"'),
    ],
)
def test_a_worker_whose_switch_is_not_the_heads_is_named(check, service, switch, value, why):
    assert check(set_env(service, WORKER, **{switch: value})).problems == [
        refused(f"{WORKER_PLACE}.env.{switch}", value, why)
    ]


def test_the_plain_ingress_is_an_explicit_choice(check, service):
    off = {HA_PROXY: "0", DIRECT_STREAMING: "0"}
    assert check(set_env(set_env(service, HEAD, **off), WORKER, **off)).problems == []


def test_a_switch_that_may_come_from_elsewhere_is_noted(check, service):
    open_env = put(service, (*WORKER, "envFrom"), [{"configMapRef": {"name": "ray"}}])
    found = check(set_env(open_env, WORKER, **{HA_PROXY: None}))
    assert found.problems == []
    assert found.notes == [
        f"{WORKER_PLACE}.env: {HA_PROXY} has to come from envFrom, which is not read"
    ]


def test_the_heads_environment_decides_what_direct_streaming_allows(check, service):
    args = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"][0]["args"]
    second = put(args["llm_configs"][0], ("model_loading_config", "model_id"), "other")
    (problem,) = check(with_serve(service, ENTRY[:-1], [args["llm_configs"][0], second])).problems
    assert problem.startswith(
        f"{SERVE_PLACE}.applications[0].args.llm_configs: direct streaming takes one model"
    )


def test_a_card_that_the_autoscaler_cannot_know_is_noted(check, service):
    typed = with_serve(service, at("accelerator_type"), "H100")
    found = check(typed)
    assert found.problems == []
    (note,) = found.notes
    assert note.startswith(f"{SERVE_PLACE}: accelerator_type 'H100' needs workers that offer")
    offering = {"resources": '"{\\"accelerator_type:H100\\": 1}"'}
    assert check(put(typed, (*WORKERS, "rayStartParams"), offering)).notes == []


# --- room, ports and time

PLACE = "spec.serveConfigV2.applications[0]"
NAME = "BrimfulServer:llama-3_1-8b"
ASKS = f"{PLACE}: a replica of {NAME} asks for"
TENSOR = at("engine_kwargs.tensor_parallel_size")
AUTO = "deployment_config.autoscaling_config"
GROWS = (*CLUSTER, "enableInTreeAutoscaling")


def found(service: dict[str, Any]) -> Findings:
    findings = Findings()
    check_documents([service], findings)
    return findings


def test_a_replica_that_no_group_can_hold_is_named(service):
    says = "asks for {} GPU; all groups together can have {} GPU"
    says = f"{PLACE}: a replica of {NAME} {says}"
    sharded = with_serve(service, TENSOR, 16)
    assert found(sharded).problems == [says.format(16, 8)]
    eight = with_serve(service, TENSOR, 8)
    assert found(eight).problems == []
    assert found(put(eight, GROWS, False)).problems == [says.format(8, 1)]
    # A pod without limits has what its node has.
    assert found(put(sharded, (*WORKER, "resources"), {})).problems == []


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
    alone = put(service, GROWS, False)
    for key, size in sizes.items():
        place = (*WORKERS, key)
        alone = without(alone, place) if size is None else put(alone, place, size)
    problems = found(with_serve(alone, TENSOR, 8)).problems
    assert bool(problems) == (there != 8)
    assert all(problem.endswith(f" {there} GPU") for problem in problems[:1])


def test_a_replica_that_has_to_be_on_one_node_is_held_against_one(service):
    bundles = {"bundle_per_worker": {"GPU": 1}, "strategy": "STRICT_PACK"}
    packed = with_serve(service, TENSOR, 2)
    packed = with_serve(packed, at("placement_group_config"), bundles)
    assert found(packed).problems == [
        f"{ASKS} 1 CPU and 2 GPU on one node; the groups have head:"
        " 0 CPU and 0 GPU; h100: 12 CPU and 1 GPU"
    ]
    two = {"limits": {"cpu": "12", "memory": "96Gi", "nvidia.com/gpu": "2"}}
    assert found(put(packed, (*WORKER, "resources"), two)).problems == []


def test_a_replica_that_wants_what_no_node_has_is_named(service):
    asking = with_serve(service, at("deployment_config.ray_actor_options.resources"), {"disk": 2})
    (problem,) = found(asking).problems
    assert "1 CPU and 1 GPU and 2 disk on one node" in problem
    start = put(asking, (*WORKERS, "rayStartParams"), {"resources": '"{\\"disk\\": 2}"'})
    field = put(asking, (*WORKERS, "resources"), {"disk": "2"})
    assert found(start).problems == found(field).problems == []


def test_more_replicas_than_there_is_room_for_are_named(service):
    least = with_serve(service, at(f"{AUTO}.min_replicas"), 9)
    least = with_serve(least, at(f"{AUTO}.max_replicas"), 9)
    over = [{"name": NAME, "num_replicas": 9, "autoscaling_config": None}]
    for nine in (least, with_serve(service, at("/deployments"), over)):
        assert (
            "spec.serveConfigV2: the replicas at least ask for 9 GPU of 8 in all groups"
            in found(nine).problems
        )
    most = found(with_serve(service, at(f"{AUTO}.max_replicas"), 12))
    assert most.problems == []
    assert f"{PLACE}: {NAME} may have 12 replicas, and the groups have room for 8" in most.notes


def test_one_replica_without_room_for_a_second_is_noted(service):
    one = with_serve(service, at(f"{AUTO}.max_replicas"), 1)
    assert found(one).notes == []
    assert found(put(one, (*WORKERS, "maxReplicas"), 1)).notes == [
        f"{PLACE}: {NAME} may have one replica, and no room for a second: while it is redeployed"
        " nobody is served, until its last stream has ended (graceful_shutdown_timeout_s: 1800) and"
        " another has started"
    ]


def test_serve_on_a_port_that_pods_do_not_name_is_named(service):
    moved = with_serve(service, ("http_options", "port"), 9000)
    says = "8000 is not allowed: http_options.port is 9000"
    assert found(moved).problems == [
        f"{HEAD_PLACE}.ports.serve: {says}",
        f"{WORKER_PLACE}.ports.serve: {says}",
        f"{WORKER_PLACE}.readinessProbe: {says}",
    ]
    # A pod that names no port is reached at 8000.
    bare = put(service, (*WORKER, "ports"), [])
    assert found(bare).problems == []
    moved = put(with_serve(bare, ("http_options", "port"), 9000), (*HEAD, "ports"), [])
    says = f"{HEAD_PLACE}.ports: Services go to port 8000 where none is named"
    assert any(line.startswith(says) for line in found(moved).problems)


def test_the_head_alone_has_to_name_serves_port_where_workers_have_a_probe_of_their_own(service):
    moved = with_serve(service, ("http_options", "port"), 9000)
    moved = put(moved, (*HEAD, "ports"), [{"name": "serve", "containerPort": 9000}])
    moved = put(moved, (*WORKER, "ports"), [])
    probe = put(moved, (*WORKER, "readinessProbe"), {"exec": {"command": ["true"]}})
    assert found(probe).problems == []
    (problem,) = found(without(moved, (*WORKER, "readinessProbe"))).problems
    assert problem.startswith(f"{WORKER_PLACE}.ports: KubeRay's probe asks port 8000")


@pytest.mark.parametrize("grace", [30, None])
def test_a_pod_that_ends_before_its_streams_is_noted(service, grace):
    path = (*POD, "terminationGracePeriodSeconds")
    short = without(service, path) if grace is None else put(service, path, grace)
    assert found(service).notes == []
    assert found(short).notes == [
        f"{WORKERS_PLACE}.template.spec.terminationGracePeriodSeconds: 30 is below"
        " graceful_shutdown_timeout_s (1800): streams are cut when a node is drained"
    ]


def test_a_node_that_drains_for_less_than_its_streams_is_noted(service):
    command = (*WORKER, "lifecycle", "preStop", "exec", "command")
    drained = ["bash", "-c", "ray drain-node --deadline-remaining-seconds 1800; sleep 1800"]
    assert found(put(service, command, drained)).notes == [
        f"{WORKERS_PLACE}.template.spec: a drain of 1800 s is no longer than"
        " graceful_shutdown_timeout_s (1800): replicas stop at once, before others have started"
    ]
