"""The components in k8s/components, laid over the base as kustomize does it."""

from copy import deepcopy
from typing import Any

import yaml

from replicas.door.settings import parse_security
from tests.manifests import CLUSTER, ROOT, load

COMPONENTS = ROOT / "k8s" / "components"
NAME = "app.kubernetes.io/name"


def laid_over(service: Any, name: str) -> Any:
    """The component's kustomization, and its patch applied to the service."""
    component = load(COMPONENTS / name / "kustomization.yaml")
    (patch,) = component["patches"]
    for step in yaml.safe_load(patch["patch"]):
        _apply(service, step)
    return component


def test_the_model_volume_takes_the_place_of_the_workers_empty_folder(service):
    component = laid_over(service, "model-volume")
    (claim,) = (load(COMPONENTS / "model-volume" / name) for name in component["resources"])
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    worker = group["template"]["spec"]
    (volume,) = worker["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (container,) = worker["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"]]
    assert {"name": "VLLM_ENABLE_STARTUP_PLAN", "value": "1"} in container["env"]


def test_spot_workers_take_what_is_above_the_base_and_are_told_when_they_go(check, service):
    laid_over(service, "spot")
    assert check(service).problems == []
    base, spot = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert base["minReplicas"] == base["replicas"] == base["maxReplicas"] == 2
    assert (spot["minReplicas"], spot["maxReplicas"]) == (0, 6)  # eight together, as before
    assert base["rayStartParams"] == {"resources": '"{\\"lasting\\": 1}"'}
    assert spot["rayStartParams"] == {}
    pod, first = spot["template"]["spec"], base["template"]["spec"]
    (container,) = pod["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert "--deadline-remaining-seconds 118" in command and command.endswith("sleep 116")
    assert pod["terminationGracePeriodSeconds"] == 120
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
    rules = load(COMPONENTS / "network-policy" / "policy.yaml")["spec"]["ingress"]
    (operator,) = (rule for rule in rules if {"port": 8265} in rule.get("ports", []))
    # Labels of the pods of KubeRay's Helm chart, and of ray-operator/config/manager.
    chart = {"name": "kuberay-operator", "component": "kuberay-operator"}
    kustomized = {"name": "kuberay", "component": "kuberay-operator"}
    for labels in (chart, kustomized, {"name": "kuberay-operator"}):
        pod = {f"app.kubernetes.io/{key}": value for key, value in labels.items()}
        selectors = [one["podSelector"]["matchLabels"] for one in operator["from"]]
        assert any(selector.items() <= pod.items() for selector in selectors)


def test_ray_has_the_command_that_workers_call_before_they_end():
    """Hidden from `ray --help`, and of no promised interface."""
    from ray.scripts.scripts import drain_node

    options = {name: option for option in drain_node.params for name in option.opts}
    assert {"--reason-message", "--deadline-remaining-seconds", "--node-id"} <= options.keys()
    assert "DRAIN_NODE_REASON_PREEMPTION" in options["--reason"].type.choices
    assert not options["--node-id"].required  # this node


def pods(service: Any) -> list[Any]:
    cluster = service
    for key in CLUSTER:
        cluster = cluster[key]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_the_secret_is_a_folder_in_every_pod_so_that_a_change_of_it_arrives(service):
    laid_over(service, "keys")
    text = (COMPONENTS / "keys" / "kustomization.yaml").read_text()
    block = yaml.safe_load(text.partition("llm_configs:  security: ")[2].partition("\n")[0])
    file = parse_security(block).keys.file
    for pod in pods(service):
        spec = pod["template"]["spec"]
        (container,) = spec["containers"]
        (mount,) = [m for m in container["volumeMounts"] if m["name"] == "keys"]
        assert file == f"{mount['mountPath']}/keys"
        assert "subPath" not in mount  # Kubernetes would not change it then
        (volume,) = [v for v in spec["volumes"] if v["name"] == "keys"]
        assert volume["secret"]["secretName"] == "brimful-keys"


def test_only_the_clusters_own_pods_reach_what_runs_code(service):
    policy = load(COMPONENTS / "network-policy" / "policy.yaml")["spec"]
    ours = service["metadata"]["labels"][NAME]
    assert all(pod["template"]["metadata"]["labels"][NAME] == ours for pod in pods(service))
    assert policy["podSelector"]["matchLabels"] == {NAME: ours}
    own, clients, operator, prometheus = policy["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": {NAME: ours}}}]}
    ports = [{p["port"] for p in rule["ports"]} for rule in (clients, operator, prometheus)]
    assert ports == [{8000}, {8265, 52365, 8000}, {8080}]
    allowed = [one["podSelector"]["matchLabels"] for one in operator["from"]]
    assert [list(labels.values()) for labels in allowed] == [["kuberay-operator"]] * 2
