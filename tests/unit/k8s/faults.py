"""Faults to put into overlays: a field of each misspelt, and fields that contradict each other."""

import copy
from dataclasses import dataclass
from typing import Any

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
