"""The components in k8s/components."""

from typing import Any

import yaml

from replicas.door.settings import parse_security
from tests.manifests import CLUSTER, ROOT, load
from tests.unit.k8s.conftest import documents, the

COMPONENTS = ROOT / "k8s" / "components"
NAME = "app.kubernetes.io/name"


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


def test_the_secret_is_a_folder_in_every_pod_so_that_a_change_of_it_arrives():
    service = the("RayService", documents("one-model"))
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
