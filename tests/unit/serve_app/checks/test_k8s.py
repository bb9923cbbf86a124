"""The RayService shipped in k8s/base, and what ``brimful check`` says once it is broken."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from serve_app.checks.findings import HA_PROXY, Findings
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
    with_serve,
    without,
)
from tests.serve_configs import ENTRY, put, refused, unknown
from tests.serve_configs import Path as KeyPath

START_S = 600  # weights over a network and compiled kernels
Check = Callable[..., Findings]


def test_the_base_passes_and_is_described(check: Check):
    found = check((BASE / "rayservice.yaml").read_text())

    assert found.problems == []
    assert found.notes == []
    assert found.summary == [
        "llama at /: model llama-3.1-8b, policy adaptive, 50 ms between tokens and 2000 ms to the"
        " first token at p99, 4 to 1024 running, 1 to 8 replicas"
    ]


def test_the_base_gives_every_replica_a_worker(service):
    (app,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    (entry,) = app["args"]["llm_configs"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    scaling = entry["deployment_config"]["autoscaling_config"]

    assert group["minReplicas"] <= scaling["min_replicas"]
    assert group["maxReplicas"] == scaling["max_replicas"]
    (worker,) = group["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_base_leaves_streams_time_to_end(service):
    (app,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    (entry,) = app["args"]["llm_configs"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]

    drain_s = entry["deployment_config"]["graceful_shutdown_timeout_s"]
    pod_s = group["template"]["spec"]["terminationGracePeriodSeconds"]
    (container,) = group["template"]["spec"]["containers"]
    told = container["lifecycle"]["preStop"]["exec"]["command"][-1]
    deadline_s = int(re.search(r"drain-node .*seconds (\d+)", told)[1])
    # Serve starts others first only while more than the drain is left until the deadline.
    assert deadline_s >= START_S + drain_s
    assert int(re.search(r"seq (\d+)", told)[1]) >= deadline_s
    assert pod_s > deadline_s


def test_kustomize_names_the_image_of_every_ray_container(service):
    kustomization = load(BASE / "kustomization.yaml")

    assert kustomization["resources"] == ["rayservice.yaml"]
    (image,) = kustomization["images"]
    cluster = service["spec"]["rayClusterConfig"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {pod["template"]["spec"]["containers"][0]["image"] for pod in pods}
    assert images == {image["name"]}


def test_the_image_has_the_ray_version_of_the_manifest(service):
    assert (
        f"ARG RAY_VERSION={service['spec']['rayClusterConfig']['rayVersion']}\n"
        in (ROOT / "Dockerfile").read_text()
    )


MISSING = "required key is missing"
BROKEN: list[tuple[KeyPath, Any, list[str]]] = [
    (
        ("apiVersion",),
        "ray.io/v1alpha1",
        [refused("apiVersion", "ray.io/v1alpha1", "must be 'ray.io/v1'")],
    ),
    (("metadata",), {}, [f"metadata.name: {MISSING}"]),
    (("spec", "serveConfig"), "", [unknown("spec", "serveConfig", "serveConfigV2")]),
    (
        (*CLUSTER, "enableInTreeAutoscalin"),
        True,
        [unknown("spec.rayClusterConfig", "enableInTreeAutoscalin", "enableInTreeAutoscaling")],
    ),
    (
        (*WORKERS, "maxReplica"),
        3,
        [unknown(WORKERS_PLACE, "maxReplica", "maxReplicas")],
    ),
    (
        (*WORKERS, "template", "spec", "nodeSelecter"),
        {},
        [unknown(f"{WORKERS_PLACE}.template.spec", "nodeSelecter", "nodeSelector")],
    ),
    (
        (*WORKER, "imagePullPolic"),
        "Always",
        [unknown(WORKER_PLACE, "imagePullPolic", "imagePullPolicy")],
    ),
    (
        (*WORKER, "resources", "limits", "memory"),
        "96 Gi",
        [f"{WORKER_PLACE}.resources.limits.memory: "],
    ),
    (
        (*WORKERS, "minReplicas"),
        9,
        [refused(f"{WORKERS_PLACE}.maxReplicas", 8, "minReplicas is 9")],
    ),
    (
        (*WORKERS, "maxReplicas"),
        "8",
        [refused(f"{WORKERS_PLACE}.maxReplicas", "8", "must be integer")],
    ),
    (
        (*CLUSTER, "workerGroupSpecs"),
        [],
        ["spec.rayClusterConfig.workerGroupSpecs: required: at least one group of workers"],
    ),
    (
        (*WORKERS, "template", "spec", "containers"),
        [],
        [
            f"{WORKERS_PLACE}.template.spec.containers: must hold the container that Ray runs in",
        ],
    ),
    (
        (*HEAD, "env", 0, "value"),
        1,
        [
            refused(f"{HEAD_PLACE}.env[0].value", 1, "must be a string (quote it)"),
            refused(f"{HEAD_PLACE}.env.{HA_PROXY}", 1, 'must be "0" or "1"'),
        ],
    ),
    (("spec", "serveConfigV2"), "applications: [", [f"{SERVE_PLACE}: line 1, column 16: not "]),
    (
        ("spec", "serveConfigV2"),
        "a: 1\na: 2\n",
        [f"{SERVE_PLACE}: line 2: a: set twice, first on line 1"],
    ),
    (
        ("spec", "serveConfigV2"),
        {"applications": []},
        [
            f"{SERVE_PLACE}: must be a string (quote it)",
            f"{SERVE_PLACE}: required: a Serve configuration as a block of text (`|`)",
        ],
    ),
]


@pytest.mark.parametrize(
    ("path", "value", "messages"), BROKEN, ids=[str(path[-1]) for path, _, _ in BROKEN]
)
def test_a_fault_in_the_manifest_is_named_with_its_place(check, service, path, value, messages):
    found = check(put(service, path, value)).problems

    assert len(found) == len(messages)
    for problem, message in zip(found, messages, strict=True):
        assert problem.startswith(message)


REQUIRED: list[KeyPath] = [
    ("spec", "rayClusterConfig"),
    (*CLUSTER, "headGroupSpec"),
    (*CLUSTER, "rayVersion"),
    (*WORKERS, "groupName"),
    (*WORKERS, "template"),
    (*WORKERS, "template", "spec", "containers"),
    (*WORKER, "name"),
    (*HEAD, "image"),
]


@pytest.mark.parametrize("path", REQUIRED, ids=lambda path: str(path[-1]))
def test_a_key_that_is_needed_and_missing_is_named(check, service, path):
    found = check(without(service, path)).problems

    assert any(
        problem.endswith(f"{path[-1]}: {MISSING}") or f".{path[-1]}: {MISSING};" in problem
        for problem in found
    )


def test_the_embedded_config_is_checked_down_to_our_blocks(check, service):
    broken = with_serve(service, (*ENTRY, "batching", "sla", "itl_msec"), 3)
    broken = with_serve(broken, (*ENTRY, "deployment_config", "max_queud_requests"), 3)

    entry = f"{SERVE_PLACE}.applications[0].args.llm_configs[0]"
    assert check(broken).problems == [
        unknown(f"{entry}.deployment_config", "max_queud_requests", "max_queued_requests"),
        unknown(f"{entry}.batching.sla", "itl_msec", "itl_ms"),
    ]


def test_a_model_path_in_the_image_is_not_looked_for_here(check, service):
    place = (*ENTRY, "model_loading_config", "model_source")

    assert check(with_serve(service, place, "/models/llama")).problems == []


def test_another_ray_version_is_noted(check, service):
    found = check(put(service, (*CLUSTER, "rayVersion"), "2.9.0"))

    assert found.problems == []
    assert found.notes == ["spec.rayClusterConfig.rayVersion: '2.9.0'; checked here by Ray 2.60"]


def test_only_the_rayservices_among_several_documents_are_checked(check, service):
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    broken = put(service, ("spec", "suspende"), True)

    assert check(yaml.dump_all([other, service, other])).problems == []
    assert check(yaml.dump_all([other, broken])).problems == [
        f"document 2: {unknown('spec', 'suspende', 'suspend')}"
    ]


def test_a_manifest_without_a_rayservice_is_an_error(check):
    assert check({"apiVersion": "v1", "kind": "ConfigMap"}).problems == [
        "kind: there is no RayService in it, only ConfigMap"
    ]
