"""The components that close a cluster: keys from a secret, and who reaches which port."""

from typing import Any

import yaml

from replicas.door.settings import parse_security
from tests.manifests import CLUSTER, ROOT, load
from tests.unit.serve_app.checks.test_k8s_components import _apply

COMPONENTS = ROOT / "k8s" / "components"
NAME = "app.kubernetes.io/name"


def pods(service: Any) -> list[Any]:
    cluster = service
    for key in CLUSTER:
        cluster = cluster[key]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_the_secret_is_a_folder_in_every_pod_so_that_a_change_of_it_arrives(service):
    text = (COMPONENTS / "keys" / "kustomization.yaml").read_text()
    (patch,) = yaml.safe_load(text)["patches"]
    for step in yaml.safe_load(patch["patch"]):
        _apply(service, step)
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
