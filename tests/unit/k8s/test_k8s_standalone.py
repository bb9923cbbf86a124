"""The plain Deployment and Service of k8s/standalone, without Ray."""

import re
from typing import Any

import pytest
import yaml

from serve_app.checks.crd import rayservice_schema, schema_problems
from tests.manifests import ROOT
from tests.unit.k8s.conftest import the
from tools.kubernetes import render

STANDALONE = ROOT / "k8s" / "standalone"


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(render(STANDALONE)))


def test_every_field_of_its_pods_is_one_of_kubernetes(objects):
    """KubeRay's schema of a RayService holds Kubernetes' own of a pod."""
    cluster = rayservice_schema()["properties"]["spec"]["properties"]["rayClusterConfig"]
    worker = cluster["properties"]["workerGroupSpecs"]["items"]
    template = the("Deployment", objects)["spec"]["template"]
    assert schema_problems(template, worker["properties"]["template"]) == []


def test_the_service_leads_to_the_port_of_its_pods(objects):
    template = the("Deployment", objects)["spec"]["template"]
    service = the("Service", objects)["spec"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert [ports[port["targetPort"]] for port in service["ports"]] == [8000]  # vLLM's own


def test_its_pods_pass_pod_security_restricted_and_outlast_their_streams(objects):
    pods = the("Deployment", objects)["spec"]["template"]["spec"]
    assert pods["securityContext"]["runAsNonRoot"]
    assert pods["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    (container,) = pods["containers"]
    own = container["securityContext"]
    assert own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}
    waits = re.search(r"--shutdown-timeout=(\d+)", " ".join(container["args"]))
    assert waits and pods["terminationGracePeriodSeconds"] > int(waits[1])
