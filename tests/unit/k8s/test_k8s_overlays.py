"""Every overlay: rendered by kustomize, checked by KubeRay's own schema and down to our blocks."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from serve_app.checks.findings import Pods, dig, listed, mapping, ray_pods
from tests.manifests import ROOT
from tests.unit.k8s.conftest import documents, the
from tools.kubernetes import overlays, render


def pods_of(document: dict[str, Any]) -> list[Pods]:
    if document["kind"] == "RayService":
        return list(ray_pods(document))
    spec = mapping(document, "spec", "template", "spec")
    return [Pods("spec.template.spec", spec, is_head=False)] if spec else []


def containers(pods: Pods) -> list[dict[str, Any]]:
    return [
        dict(one) for key in ("initContainers", "containers") for _, one in listed(pods.spec, key)
    ]


def ray_groups(service: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = service["spec"]["rayClusterConfig"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


@pytest.mark.parametrize("name", overlays())
def test_an_overlay_passes_kuberays_schema_and_every_check(name, check_objects):
    found = check_objects(render(ROOT / "k8s" / "overlays" / name))
    assert found.problems == []
    assert found.summary
    # A notice of two minutes, and its header says what that means.
    assert found.notes == [] or name == "spot"


@pytest.mark.parametrize("name", overlays())
def test_every_pod_of_an_overlay_passes_pod_security_restricted(name):
    for pods in (one for document in documents(name) for one in pods_of(document)):
        of_pod, kinds = pods.spec["securityContext"], {"name", "emptyDir", "secret"}
        assert of_pod["runAsNonRoot"] and of_pod["runAsUser"] != 0
        assert of_pod["seccompProfile"]["type"] == "RuntimeDefault"
        assert not pods.spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        volumes = pods.spec.get("volumes", [])
        assert all(one.keys() <= kinds | {"persistentVolumeClaim", "configMap"} for one in volumes)
        for container in containers(pods):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False and not own.get("privileged")
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert all("hostPort" not in port for port in container.get("ports", []))


@pytest.mark.parametrize("name", overlays())
def test_every_selector_of_an_overlay_chooses_a_pod(name):
    objects = documents(name)
    templates = [dig(one, "spec", "template") for one in objects]
    templates += [one["template"] for one in ray_groups(the("RayService", objects))]
    labels = [mapping(one, "metadata", "labels") for one in templates if one]
    for one in objects:
        selector = mapping(one, "spec", "podSelector") or mapping(one, "spec", "selector")
        wanted = mapping(selector, "matchLabels") or (selector if one["kind"] == "Service" else {})
        own = {key: value for key, value in wanted.items() if not key.startswith("ray.io/")}
        assert any(own.items() <= each.items() for each in labels), one["kind"]


@pytest.mark.parametrize("name", overlays())
def test_probes_ask_what_answers_beside_a_busy_engine(name):
    """Ray's agent and HAProxy, each a process of its own; and they are waited for."""
    for pods in ray_pods(the("RayService", documents(name))):
        for container in containers(pods):
            for key in ("readinessProbe", "livenessProbe"):
                probe = container[key]
                assert probe["timeoutSeconds"] >= 10
                asked = {
                    int(port) for port in re.findall(r"(?:localhost:|'port': )(\d+)", str(probe))
                }
                assert asked <= {52365, 8000} and 52365 in asked
            # No start of an engine is ended: liveness knows Ray's agent alone.
            assert "8000" not in str(container["livenessProbe"])


@pytest.mark.parametrize("name", overlays())
def test_pods_outlast_what_they_tell_ray_and_that_outlasts_the_streams(name):
    service = the("RayService", documents(name))
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    waits = [
        entry["deployment_config"]["graceful_shutdown_timeout_s"]
        for app in config["applications"]
        for entry in app.get("args", {}).get("llm_configs", [])
    ]
    for group in ray_groups(service)[1:]:
        spec = group["template"]["spec"]
        told = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        deadline_s = int(re.search(r"--deadline-remaining-seconds (\d+)", told)[1])
        assert spec["terminationGracePeriodSeconds"] > deadline_s
        if not group["groupName"].endswith("spot"):  # the cloud's notice is no longer
            assert deadline_s > max(waits)


def test_the_image_without_a_card_has_what_its_installation_reads():
    steps = (ROOT / "Dockerfile.cpu").read_text()
    copied = {word for line in re.findall(r"^COPY .*", steps, re.M) for word in line.split()[2:]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name.rstrip("*") for name in packages} <= copied
    assert {
        "pyproject.toml",
        "requirements.lock",
        "README.md",
        "LICENSE",
        "NOTICE",
        "tools",
    } <= copied
    sent = {name.removeprefix("!") for name in (ROOT / ".dockerignore").read_text().split()}
    assert copied - {"./"} <= sent
    version = the("RayService", documents("cpu"))["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"ARG RAY_VERSION={version}\n" in steps
    assert f"\nray=={version}\n" in (ROOT / "requirements.lock").read_text()
