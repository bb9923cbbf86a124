"""One field of each overlay misspelt, and fields that contradict each other: refused by name."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from serve_app.checks.pod_security import restricted_problems
from tests.serve_configs import at, place, put, refused, unknown
from tests.unit.k8s.conftest import documents, the
from tools.kubernetes import overlays

CLUSTER, SERVICE = "//spec.rayClusterConfig", "RayService"
HEAD = f"{CLUSTER}.headGroupSpec.template.spec"
GROUP = f"{CLUSTER}.workerGroupSpecs.0"
WORKER = f"{GROUP}.template.spec"
UPGRADE = "//spec.upgradeStrategy"
OPTIONS = f"{UPGRADE}.clusterUpgradeOptions"
FAULTS = f"{CLUSTER}.gcsFaultToleranceOptions"
RULE = "//spec.rules.0"
DISRUPTION = {"kind": "PodDisruptionBudget", "name": "brimful-workers"}
POLICY = {"kind": "NetworkPolicy"}
INCREMENTAL = "NewClusterWithIncrementalUpgrade"
TWICE = "is set beside gcsFaultToleranceOptions, which says it to Ray; take one away"


@dataclass(frozen=True)
class Case:
    """A change of one object of an overlay, and what is said of it.

    Args:
        path: of a value; where ``to`` is given, of a key that gets this name.
        why: the value is not allowed. Or ``says``, after the place of the path.
        at: another place that it is said of.
    """

    overlay: str
    path: str
    value: Any = None
    why: str = ""
    says: str = ""
    to: str | None = None
    at: str = ""
    kind: str = SERVICE
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.overlay}-{self.to or self.path.rpartition('.')[2]}"

    @property
    def line(self) -> str:
        if self.to is not None:
            above, _, key = place(self.path).rpartition(".")
            return unknown(above, self.to, key)
        where = place(self.at or self.path)
        return refused(where, self.value, self.why) if self.why else f"{where}{self.says}"


def changed(case: Case) -> list[dict[str, Any]]:
    objects = documents(case.overlay)
    old = the(case.kind, objects, case.name)
    if case.to is None:
        new = put(old, at(case.path), case.value)
    else:
        new = inner = copy.deepcopy(old)
        for part in at(case.path)[:-1]:
            inner = inner[part]
        inner[case.to] = inner.pop(at(case.path)[-1])
    return [new if one is old else one for one in objects]


CASES = [
    Case("cpu", f"{GROUP}.maxReplicas", to="maxReplica"),
    Case("emulated", f"{WORKER}.terminationGracePeriodSeconds", to="terminationGracePeriod"),
    Case("ha", f"{FAULTS}.redisAddress", to="redisAdress"),
    Case("ha", "//spec.serviceName", to="serviceNames", kind="StatefulSet"),
    Case("many-models", "//spec.minAvailable", to="minAvailible", **DISRUPTION),
    Case("spot", f"{WORKER}.topologySpreadConstraints.0.whenUnsatisfiable", to="whenUnsatisfied"),
    Case("upgrade", f"{OPTIONS}.stepSizePercent", to="stepSizePercentage"),
    Case("gateway", f"{RULE}.backendRefs.0.name", "brimful-serve-service",
        says=": 'brimful-serve-service' is not in this manifest; did you mean 'brimful-serve-svc'?",
        kind="HTTPRoute"),
    Case("one-model", f"{HEAD}.priorityClassName", "brimful-haed",
        says=": 'brimful-haed' is not in this manifest; did you mean 'brimful-head'?"),
    Case("one-model", "//spec.podMetricsEndpoints.0.port", "metric",
        "the pods have ports of the names client, dashboard, gcs, metrics, serve",
        kind="PodMonitor"),
    Case("disaggregated", f"{GROUP}.minReplicas", to="minReplica"),
    # Contradictions.
    Case("upgrade", f"{UPGRADE}.type", "NewClusterWithIncrementalUpgrad",
        f"must be None or NewCluster or {INCREMENTAL}"),
    Case("upgrade", f"{UPGRADE}.type", "NewCluster", at=OPTIONS,
        says=f": has no effect unless upgradeStrategy.type is {INCREMENTAL}"),
    Case("one-model", UPGRADE, {"type": INCREMENTAL}, at=OPTIONS,
        says=f": required key is missing; {INCREMENTAL} needs it"),
    Case("upgrade", f"{OPTIONS}.maxSurgePercent", 250, "must be from 1 to 100"),
    Case("upgrade", f"{OPTIONS}.intervalSeconds", 0, "must be 1 or more"),
    Case("ha", f"{FAULTS}.redisAddress", "brimful-redis:6380",
        "Service brimful-redis has port 6379"),
    Case("ha", FAULTS, {"backend": "redis"}, at=f"{FAULTS}.redisAddress",
        says=": required key is missing: HOST:PORT of Redis"),
    Case("ha", f"{HEAD}.containers.0.env.4",
        {"name": "RAY_REDIS_ADDRESS", "value": "brimful-redis:6379"},
        at=f"{HEAD}.containers.0.env.4.name", says=f": RAY_REDIS_ADDRESS {TWICE}"),
    Case("ha", f"{CLUSTER}.headGroupSpec.rayStartParams.redis-password", "secret",
        says=f": {TWICE}"),
    Case("one-model", "//spec.maxUnavailable", 1,
        "no scale belongs to Ray's pods, so Kubernetes takes minAvailable, as a number, alone",
        **DISRUPTION),
    Case("one-model", "//spec.podSelector.matchLabels", {"app.kubernetes.io/name": "brimfull"},
        at="//spec.podSelector",
        says=": chooses no pod of this manifest (app.kubernetes.io/name=brimfull)", **POLICY),
    Case("gateway", f"{RULE}.backendRefs.0.port", 80, "Service brimful-serve-svc has port 8000",
        kind="HTTPRoute"),
    Case("spot", f"{GROUP}.minReplicas", 3, at=GROUP,
        says=".maxReplicas: 2 is not allowed: minReplicas is 3"),
    Case("cpu", f"{WORKER}.containers.0.volumeMounts.0.name", "weights",
        "the pod's volumes are models"),
    # What an API server or `ray start` would refuse, and what parts pods from each other.
    Case("one-model", "//apiVersion", "policy/v1beta1", "must be 'policy/v1'", **DISRUPTION),
    Case("one-model", f"{WORKER}.containers.0.resources.requests.memory", "200Gi",
        "the limit is 96Gi, and Kubernetes takes no more"),
    Case("one-model", f"{WORKER}.tolerations.0.effect", "NoSched",
        "must be one of NoSchedule, PreferNoSchedule, NoExecute"),
    Case("one-model", f"{WORKER}.containers.0.imagePullPolicy", "always",
        "must be one of Always, IfNotPresent, Never"),
    Case("one-model", f"{GROUP}.rayStartParams", {"num-cpu": "4"},
        says=": unknown key 'num-cpu'; did you mean 'num-cpus'?"),
    Case("one-model", f"{GROUP}.rayStartParams.num-gpus", "4",
        "Ray's container has 1 by its limit of nvidia.com/gpu"),
    Case("one-model", "//spec.policyTypes", ["Ingress", "Egress"], at="//spec.egress",
        says=": lets nothing out: Ray's pods would find neither names nor the head", **POLICY),
    Case("one-model", "//spec.ingress.0.from.0.podSelector.matchLabels", {"app": "brimful"},
        at="//spec.ingress",
        says=": keeps headGroupSpec from headGroupSpec; a rule without ports has to let Ray's own"
        " pods in", **POLICY),
    # A port for NIXL's handshake alone: KV comes by ports that UCX picks.
    Case("disaggregated", "//spec.ingress.0",
        {"from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "brimful"}}}],
         "ports": [{"port": 20000, "endPort": 20007}]}, at="//spec.ingress",
        says=": keeps headGroupSpec from headGroupSpec; a rule without ports has to let Ray's own"
        " pods in", **POLICY),
    Case("ha", "//spec.ports.0.targetPort", "rediss", "the pods have ports of the names redis",
        kind="Service"),
    Case("ha", "//spec.selector", {"app": "redis"},
        says=": chooses no pod of this manifest (app=redis)", kind="Service"),
    Case("ha", "//spec.selector.matchLabels", {"app.kubernetes.io/name": "redis"},
        says=".app.kubernetes.io/name: 'redis' is not allowed: spec.template.metadata.labels has"
        " 'brimful-redis'", kind="StatefulSet"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_refused_by_name(case: Case, check_objects: Callable[..., Any]) -> None:
    problems = check_objects(changed(case)).problems
    assert case.line in [one.partition(": ")[2] if "document" in one else one for one in problems]
    # What is missing once its name is misspelt is said, too; and nothing else.
    more = [one for one in problems if not one.endswith(case.line)]
    assert all("required key is missing" in one for one in more)


def test_each_overlay_is_among_them():
    assert {case.overlay for case in CASES} == set(overlays())


def test_an_incremental_upgrade_without_the_autoscaler_is_refused(check_objects):
    off = Case("upgrade", f"{CLUSTER}.enableInTreeAutoscaling", False)
    problem = check_objects(changed(off)).problems[0]
    assert "spec.rayClusterConfig.enableInTreeAutoscaling: must be true with NewCluster" in problem


def test_a_field_that_their_definition_does_not_have_is_refused(check_objects, crd, monkeypatch):
    """An older operator: `--crd` is what it goes by."""
    strategy = crd["properties"]["spec"]["properties"]["upgradeStrategy"]
    monkeypatch.delitem(strategy["properties"], "clusterUpgradeOptions")
    (problem,) = check_objects(documents("upgrade")).problems
    assert "spec.upgradeStrategy: unknown key 'clusterUpgradeOptions'" in problem


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (f"{CLUSTER}.autoscalerOptions.securityContext", {}, "autoscalerOptions.securityContext."),
        (f"{HEAD}.hostNetwork", True, "headGroupSpec.template.spec.hostNetwork: True is not allow"),
        (f"{HEAD}.volumes.0", {"name": "models", "hostPath": {"path": "/m"}}, ".hostPath: no such"),
        (f"{HEAD}.securityContext.runAsNonRoot", False, ".runAsNonRoot: must be true"),
        (f"{HEAD}.securityContext.runAsUser", 0, ".runAsUser: 0 is not allowed"),
        (f"{HEAD}.containers.0.ports.3.hostPort", 80, ".ports[3].hostPort: 80 is not allowed"),
        (f"{WORKER}.securityContext.seccompProfile", {"type": "Unconfined"},
         ".seccompProfile.type: must be Runtime"),
        (f"{WORKER}.containers.0.securityContext.privileged", True, ".privileged: True"),
        (f"{WORKER}.containers.0.securityContext.capabilities",
         {"drop": ["ALL"], "add": ["SYS_PTRACE"]},
         ".capabilities.add: 'SYS_PTRACE' is not allowed"),
    ],
)  # fmt: skip
def test_what_restricted_would_refuse_is_named_where_the_namespace_enforces_it(
    path: str, value: Any, says: str, check_objects: Callable[..., Any]
) -> None:
    service = put(the(SERVICE, documents("upgrade")), at(path), value)
    service["metadata"]["namespace"] = "llm"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    meta = {"name": "llm", "labels": labels}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    assert any(says in problem for problem in restricted_problems(service))
    assert check_objects([service]).problems == []
    problems = check_objects([namespace, service]).problems
    assert any(says in problem and "enforces Pod Security" in problem for problem in problems)


def test_a_secret_without_the_key_that_is_asked_for_is_named(check_objects):
    secret: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret"}
    secret |= {"metadata": {"name": "brimful-redis"}, "stringData": {"pasword": "x"}}
    problems = check_objects([secret, *documents("ha")]).problems
    assert all("'password' is not allowed: Secret brimful-redis has the" in p for p in problems)
    assert len(problems) == 2  # Redis and the RayService
    secret["stringData"] = {"password": yaml.safe_dump("x")}
    assert check_objects([secret, *documents("ha")]).problems == []
