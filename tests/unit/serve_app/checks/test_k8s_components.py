"""The components in k8s/components, laid over the base as kustomize does it."""

from copy import deepcopy
from typing import Any

import yaml

from tests.manifests import ROOT


def test_the_model_volume_takes_the_place_of_the_workers_empty_folder(service):
    folder = ROOT / "k8s" / "components" / "model-volume"
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (claim,) = (yaml.safe_load((folder / name).read_text()) for name in component["resources"])
    (patch,) = component["patches"]

    for step in yaml.safe_load(patch["patch"]):
        _apply(service, step)

    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    worker = group["template"]["spec"]
    (volume,) = worker["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (container,) = worker["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"]]
    assert {"name": "VLLM_ENABLE_STARTUP_PLAN", "value": "1"} in container["env"]


def test_spot_workers_take_what_is_above_the_base_and_are_told_when_they_go(check, service):
    folder = ROOT / "k8s" / "components" / "spot"
    (patch,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["patches"]
    for step in yaml.safe_load(patch["patch"]):
        _apply(service, step)

    assert check(service).problems == []
    base, spot = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert base["minReplicas"] == base["replicas"] == base["maxReplicas"] == 2
    assert (spot["minReplicas"], spot["maxReplicas"]) == (0, 6)  # eight together, as before
    pod, first = spot["template"]["spec"], base["template"]["spec"]
    (container,) = pod["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert "--deadline-remaining-seconds 28" in command and command.endswith("sleep 26")
    assert pod["terminationGracePeriodSeconds"] == 30
    theirs = first["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert "--deadline-remaining-seconds 2400" in theirs and len(first["nodeSelector"]) == 1
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"


def _apply(document: Any, step: dict[str, Any]) -> None:
    """One step of a JSON patch, as kustomize does it."""
    whole = document
    *holders, last = _keys(step["path"])
    for key in holders:
        document = document[int(key) if isinstance(document, list) else key]
    key = int(last) if last.isdigit() else last
    if step["op"] == "copy":
        value = whole
        for part in _keys(step["from"]):
            value = value[int(part) if isinstance(value, list) else part]
        step = {"op": "add", "path": step["path"], "value": deepcopy(value)}
    if step["op"] == "test":
        assert document[key] == step["value"]
    elif key == "-":
        document.append(step["value"])
    else:
        document[key] = step["value"]


def _keys(path: str) -> list[str]:
    return [key.replace("~1", "/") for key in path.strip("/").split("/")]


def test_the_policy_lets_the_operator_in_however_it_was_installed():
    path = ROOT / "k8s" / "components" / "network-policy" / "policy.yaml"
    rules = yaml.safe_load(path.read_text())["spec"]["ingress"]
    (operator,) = (rule for rule in rules if {"port": 8265} in rule.get("ports", []))
    # Labels of the pods of KubeRay's Helm chart, and of ray-operator/config/manager.
    chart = {"name": "kuberay-operator", "component": "kuberay-operator"}
    kustomized = {"name": "kuberay", "component": "kuberay-operator"}
    for labels in (chart, kustomized, {"name": "kuberay-operator"}):
        pod = {f"app.kubernetes.io/{key}": value for key, value in labels.items()}
        selectors = [one["podSelector"]["matchLabels"] for one in operator["from"]]
        assert any(selector.items() <= pod.items() for selector in selectors)


def test_the_image_is_checked_to_have_a_haproxy():
    assert "haproxy_binary())')\" -v" in (ROOT / "Dockerfile").read_text()


def test_ray_has_the_command_that_workers_call_before_they_end():
    """Hidden from `ray --help`, and of no promised interface."""
    from ray.scripts.scripts import drain_node

    options = {name: option for option in drain_node.params for name in option.opts}
    assert {"--reason-message", "--deadline-remaining-seconds", "--node-id"} <= options.keys()
    assert "DRAIN_NODE_REASON_PREEMPTION" in options["--reason"].type.choices
    assert not options["--node-id"].required  # this node
