"""One field of each overlay misspelt, and fields that contradict each other: refused by name."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from serve_app.checks.pod_security import restricted_problems
from tests.serve_configs import Path, put
from tests.unit.k8s.conftest import documents, the

CLUSTER = ("spec", "rayClusterConfig")
HEAD = (*CLUSTER, "headGroupSpec", "template", "spec")
GROUP = (*CLUSTER, "workerGroupSpecs", 0)
WORKER = (*GROUP, "template", "spec")
UPGRADE = ("spec", "upgradeStrategy")
OPTIONS = (*UPGRADE, "clusterUpgradeOptions")
FAULTS = (*CLUSTER, "gcsFaultToleranceOptions")
RULE = ("spec", "rules", 0)
SERVICE = "RayService"


@dataclass(frozen=True)
class Case:
    """A change of one object of an overlay, and what is said of it.

    Args:
        path: of a value; where ``to`` is given, of a key that gets this name.
    """

    overlay: str
    path: Path
    says: str
    value: Any = None
    to: str | None = None
    kind: str = SERVICE
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.overlay}-{self.to or self.path[-1]}"


def changed(case: Case) -> list[dict[str, Any]]:
    objects = documents(case.overlay)
    old = the(case.kind, objects, case.name)
    if case.to is None:
        new = put(old, case.path, case.value)
    else:
        new = copy.deepcopy(old)
        inner: Any = new
        for part in case.path[:-1]:
            inner = inner[part]
        inner[case.to] = inner.pop(case.path[-1])
    return [new if one is old else one for one in objects]


MISSPELT = [
    Case(
        "cpu",
        (*GROUP, "maxReplicas"),
        "spec.rayClusterConfig.workerGroupSpecs[0]: unknown key 'maxReplica'; did you mean"
        " 'maxReplicas'?",
        to="maxReplica",
    ),
    Case(
        "emulated",
        (*WORKER, "terminationGracePeriodSeconds"),
        "spec.rayClusterConfig.workerGroupSpecs[0].template.spec: unknown key"
        " 'terminationGracePeriod'; did you mean 'terminationGracePeriodSeconds'?",
        to="terminationGracePeriod",
    ),
    Case(
        "gateway",
        (*RULE, "backendRefs", 0, "name"),
        "spec.rules[0].backendRefs[0].name: 'brimful-serve-service' is not in this manifest; did"
        " you mean 'brimful-serve-svc'?",
        "brimful-serve-service",
        kind="HTTPRoute",
    ),
    Case(
        "ha",
        (*FAULTS, "redisAddress"),
        "spec.rayClusterConfig.gcsFaultToleranceOptions: unknown key 'redisAdress'; did you mean"
        " 'redisAddress'?",
        to="redisAdress",
    ),
    Case(
        "ha",
        ("spec", "serviceName"),
        "spec: unknown key 'serviceNames'; did you mean 'serviceName'?",
        to="serviceNames",
        kind="StatefulSet",
    ),
    Case(
        "many-models",
        ("spec", "minAvailable"),
        "spec: unknown key 'minAvailible'; did you mean 'minAvailable'?",
        to="minAvailible",
        kind="PodDisruptionBudget",
        name="brimful-workers",
    ),
    Case(
        "one-model",
        (*HEAD, "priorityClassName"),
        "spec.rayClusterConfig.headGroupSpec.template.spec.priorityClassName: 'brimful-haed' is not"
        " in this manifest; did you mean 'brimful-head'?",
        "brimful-haed",
    ),
    Case(
        "one-model",
        ("spec", "podMetricsEndpoints", 0, "port"),
        "spec.podMetricsEndpoints[0].port: 'metric' is not allowed: the pods have ports of the"
        " names client, dashboard, gcs, metrics, serve",
        "metric",
        kind="PodMonitor",
    ),
    Case(
        "spot",
        (*WORKER, "topologySpreadConstraints", 0, "whenUnsatisfiable"),
        "spec.rayClusterConfig.workerGroupSpecs[0].template.spec.topologySpreadConstraints[0]:"
        " unknown key 'whenUnsatisfied'; did you mean 'whenUnsatisfiable'?",
        to="whenUnsatisfied",
    ),
    Case(
        "upgrade",
        (*OPTIONS, "stepSizePercent"),
        "spec.upgradeStrategy.clusterUpgradeOptions: unknown key 'stepSizePercentage'; did you"
        " mean 'stepSizePercent'?",
        to="stepSizePercentage",
    ),
]

CONTRADICTORY = [
    Case(
        "upgrade",
        (*UPGRADE, "type"),
        "spec.upgradeStrategy.type: 'NewClusterWithIncrementalUpgrad' is not allowed: must be None"
        " or NewCluster or NewClusterWithIncrementalUpgrade",
        "NewClusterWithIncrementalUpgrad",
    ),
    Case(
        "upgrade",
        (*UPGRADE, "type"),
        "spec.upgradeStrategy.clusterUpgradeOptions: has no effect unless upgradeStrategy.type is"
        " NewClusterWithIncrementalUpgrade",
        "NewCluster",
    ),
    Case(
        "one-model",
        UPGRADE,
        "spec.upgradeStrategy.clusterUpgradeOptions: required key is missing;"
        " NewClusterWithIncrementalUpgrade needs it",
        {"type": "NewClusterWithIncrementalUpgrade"},
    ),
    Case(
        "upgrade",
        (*OPTIONS, "maxSurgePercent"),
        "spec.upgradeStrategy.clusterUpgradeOptions.maxSurgePercent: 250 is not allowed: must be"
        " from 1 to 100",
        250,
    ),
    Case(
        "upgrade",
        (*OPTIONS, "intervalSeconds"),
        "spec.upgradeStrategy.clusterUpgradeOptions.intervalSeconds: 0 is not allowed: must be 1"
        " or more",
        0,
    ),
    Case(
        "ha",
        (*FAULTS, "redisAddress"),
        "spec.rayClusterConfig.gcsFaultToleranceOptions.redisAddress: 'brimful-redis:6380' is not"
        " allowed: Service brimful-redis has port 6379",
        "brimful-redis:6380",
    ),
    Case(
        "ha",
        FAULTS,
        "spec.rayClusterConfig.gcsFaultToleranceOptions.redisAddress: required key is missing:"
        " HOST:PORT of Redis",
        {"backend": "redis"},
    ),
    Case(
        "ha",
        (*HEAD, "containers", 0, "env", 4),
        "spec.rayClusterConfig.headGroupSpec.template.spec.containers[0].env[4].name:"
        " RAY_REDIS_ADDRESS is set beside gcsFaultToleranceOptions, which says it to Ray; take one"
        " away",
        {"name": "RAY_REDIS_ADDRESS", "value": "brimful-redis:6379"},
    ),
    Case(
        "ha",
        (*CLUSTER, "headGroupSpec", "rayStartParams", "redis-password"),
        "spec.rayClusterConfig.headGroupSpec.rayStartParams.redis-password: is set beside"
        " gcsFaultToleranceOptions, which says it to Ray; take one away",
        "secret",
    ),
    Case(
        "one-model",
        ("spec", "maxUnavailable"),
        "spec.maxUnavailable: 1 is not allowed: no scale belongs to Ray's pods, so Kubernetes takes"
        " minAvailable, as a number, alone",
        1,
        kind="PodDisruptionBudget",
        name="brimful-workers",
    ),
    Case(
        "one-model",
        ("spec", "podSelector", "matchLabels"),
        "spec.podSelector: chooses no pod of this manifest (app.kubernetes.io/name=brimfull)",
        {"app.kubernetes.io/name": "brimfull"},
        kind="NetworkPolicy",
    ),
    Case(
        "gateway",
        (*RULE, "backendRefs", 0, "port"),
        "spec.rules[0].backendRefs[0].port: 80 is not allowed: Service brimful-serve-svc has port"
        " 8000",
        80,
        kind="HTTPRoute",
    ),
    Case(
        "spot",
        (*GROUP, "minReplicas"),
        "spec.rayClusterConfig.workerGroupSpecs[0].maxReplicas: 2 is not allowed: minReplicas is 3",
        3,
    ),
    Case(
        "cpu",
        (*WORKER, "containers", 0, "volumeMounts", 0, "name"),
        "spec.rayClusterConfig.workerGroupSpecs[0].template.spec.containers[0].volumeMounts[0].name:"
        " 'weights' is not allowed: the pod's volumes are models",
        "weights",
    ),
]


@pytest.mark.parametrize("case", [*MISSPELT, *CONTRADICTORY], ids=str)
def test_it_is_refused_by_name(case: Case, check_objects: Callable[..., Any]) -> None:
    problems = check_objects(changed(case)).problems

    assert case.says in [one.partition(": ")[2] if "document" in one else one for one in problems]
    # What is missing once its name is misspelt is said, too; and nothing else.
    more = [one for one in problems if not one.endswith(case.says)]
    assert all("required key is missing" in one for one in more)


def test_each_overlay_has_a_misspelt_field_among_them():
    from tools.kubernetes import overlays

    assert {case.overlay for case in MISSPELT} == set(overlays())
    assert len(MISSPELT) >= 10


def test_an_incremental_upgrade_without_the_autoscaler_is_refused(check_objects):
    (problem, *_) = check_objects(
        changed(Case("upgrade", (*CLUSTER, "enableInTreeAutoscaling"), "", False))
    ).problems
    assert "spec.rayClusterConfig.enableInTreeAutoscaling: must be true with NewCluster" in problem


def test_a_field_that_their_definition_does_not_have_is_refused(check_objects, crd):
    """An older operator: `--crd` is what it goes by."""
    strategy = crd["properties"]["spec"]["properties"]["upgradeStrategy"]
    options = strategy["properties"].pop("clusterUpgradeOptions")
    try:
        problems = check_objects(documents("upgrade")).problems
    finally:
        strategy["properties"]["clusterUpgradeOptions"] = options
    (problem,) = problems
    assert "spec.upgradeStrategy: unknown key 'clusterUpgradeOptions'" in problem


RESTRICTED = [
    ((*CLUSTER, "autoscalerOptions", "securityContext"), {}, "autoscalerOptions.securityContext."),
    ((*HEAD, "hostNetwork"), True, "headGroupSpec.template.spec.hostNetwork: True is not allowed"),
    ((*HEAD, "volumes", 0), {"name": "models", "hostPath": {"path": "/m"}}, ".hostPath: no such"),
    ((*HEAD, "securityContext", "runAsNonRoot"), False, ".runAsNonRoot: must be true"),
    ((*HEAD, "securityContext", "runAsUser"), 0, ".runAsUser: 0 is not allowed"),
    (
        (*WORKER, "securityContext", "seccompProfile"),
        {"type": "Unconfined"},
        ".seccompProfile.type: must be Runtime",
    ),
    ((*WORKER, "containers", 0, "securityContext", "privileged"), True, ".privileged: True"),
    (
        (*WORKER, "containers", 0, "securityContext", "capabilities"),
        {"drop": ["ALL"], "add": ["SYS_PTRACE"]},
        ".capabilities.add: 'SYS_PTRACE' is not allowed",
    ),
]


@pytest.mark.parametrize(("path", "value", "says"), RESTRICTED, ids=lambda one: str(one)[:40])
def test_what_restricted_would_refuse_is_named_where_the_namespace_enforces_it(
    path: Path, value: Any, says: str, check_objects: Callable[..., Any]
) -> None:
    service = put(the(SERVICE, documents("upgrade")), path, value)
    service["metadata"]["namespace"] = "llm"
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "llm",
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    }
    assert any(says in problem for problem in restricted_problems(service))

    assert check_objects([service]).problems == []
    problems = check_objects([namespace, service]).problems
    assert any(says in problem and "enforces Pod Security" in problem for problem in problems)


def test_a_secret_without_the_key_that_is_asked_for_is_named(check_objects):
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "brimful-redis"},
        "stringData": {"pasword": "x"},
    }
    problems = check_objects([secret, *documents("ha")]).problems
    assert all("'password' is not allowed: Secret brimful-redis has the" in p for p in problems)
    assert len(problems) == 2  # Redis and the RayService
    secret["stringData"] = {"password": yaml.safe_dump("x")}
    assert check_objects([secret, *documents("ha")]).problems == []
