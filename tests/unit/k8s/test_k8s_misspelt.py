"""One field of each overlay misspelt, and fields that contradict each other: refused by name."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.serve_configs import at, place, put, refused, unknown
from tests.unit.k8s.conftest import documents, the

CLUSTER, SERVICE = "//spec.rayClusterConfig", "RayService"
GROUP = f"{CLUSTER}.workerGroupSpecs.0"
WORKER = f"{GROUP}.template.spec"
UPGRADE = "//spec.upgradeStrategy"
OPTIONS = f"{UPGRADE}.clusterUpgradeOptions"
FAULTS = f"{CLUSTER}.gcsFaultToleranceOptions"
RULE = "//spec.rules.0"


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
    Case("many-models", f"{WORKER}.nodeSelector", to="nodeSelectors"),
    Case("spot", f"{WORKER}.topologySpreadConstraints.0.whenUnsatisfiable", to="whenUnsatisfied"),
    Case("upgrade", f"{OPTIONS}.stepSizePercent", to="stepSizePercentage"),
    Case("disaggregated", f"{GROUP}.minReplicas", to="minReplica"),
    # Contradictions.
    Case("gateway", f"{RULE}.backendRefs.0.name", "brimful-serve-service",
        says=": 'brimful-serve-service' is not in this manifest; did you mean 'brimful-serve-svc'?",
        kind="HTTPRoute"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_refused_by_name(case: Case, check_objects: Callable[..., Any]) -> None:
    problems = check_objects(changed(case)).problems
    assert case.line in [one.partition(": ")[2] if "document" in one else one for one in problems]
    # What is missing once its name is misspelt is said, too; and nothing else.
    more = [one for one in problems if not one.endswith(case.line)]
    assert all("required key is missing" in one for one in more)
