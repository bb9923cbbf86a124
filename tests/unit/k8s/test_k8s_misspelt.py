"""One field of each overlay misspelt, and fields that contradict each other: refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from serve_app.checks.pod_security import restricted_problems
from tests.serve_configs import Path, put
from tests.unit.k8s.conftest import documents, the
from tests.unit.k8s.faults import (
    CLUSTER,
    CONTRADICTORY,
    HEAD,
    MISSPELT,
    SERVICE,
    WORKER,
    Case,
    changed,
)
from tests.unit.k8s.refusals import REFUSED


@pytest.mark.parametrize("case", [*MISSPELT, *CONTRADICTORY, *REFUSED], ids=str)
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
    ((*HEAD, "containers", 0, "ports", 3, "hostPort"), 80, ".ports[3].hostPort: 80 is not allowed"),
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
