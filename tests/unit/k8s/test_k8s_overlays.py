"""Every overlay: rendered by kustomize, checked by KubeRay's own schema and down to our blocks."""

import re
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from serve_app.checks.objects import Pods, listed, pods_of
from tests.manifests import ROOT
from tests.unit.k8s.conftest import documents, the
from tools.kubernetes import overlays, render


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
def test_probes_ask_what_answers_beside_a_busy_engine(name):
    """Ray's agent and HAProxy, each a process of its own; and they are waited for."""
    for pods in pods_of(the("RayService", documents(name))):
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


def test_the_ways_to_try_it_ask_for_no_card_and_little_else():
    for name in ("cpu", "emulated"):
        service = the("RayService", documents(name))
        cluster = service["spec"]["rayClusterConfig"]
        assert "nvidia.com/gpu" not in str(cluster)
        assert "nodeSelector" not in str(cluster) and "tolerations" not in str(cluster)
        requests = [
            group["template"]["spec"]["containers"][0]["resources"]["requests"]
            for group in ray_groups(service)
        ]
        assert requests == [{"cpu": "500m", "memory": "3Gi"}, {"cpu": "1", "memory": "5Gi"}]
        config = yaml.safe_load(service["spec"]["serveConfigV2"])
        (entry,) = config["applications"][0]["args"]["llm_configs"]
        source = entry["model_loading_config"]["model_source"]
        assert f"brimful small-model {source}\n" in (ROOT / "Dockerfile.cpu").read_text()


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


def test_the_head_may_go_where_redis_holds_what_it_knew():
    objects = documents("ha")
    options = the("RayService", objects)["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    service, redis = the("Service", objects), the("StatefulSet", objects)
    assert options["redisAddress"] == f"{service['metadata']['name']}:6379"
    secret = options["redisPassword"]["valueFrom"]["secretKeyRef"]
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    assert [env["valueFrom"]["secretKeyRef"] for env in container["env"]] == [secret]
    assert redis["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
    budgets = [one for one in objects if one["kind"] == "PodDisruptionBudget"]
    assert [one["metadata"]["name"] for one in budgets] == ["brimful-workers"]


def test_serve_configurations_differ_from_the_base_in_what_their_header_says():
    def entry(name: str) -> dict[str, Any]:
        text = the("RayService", documents(name))["spec"]["serveConfigV2"]
        return yaml.safe_load(text)["applications"][0]["args"]

    base, keys, spot = entry("ha"), entry("one-model"), entry("spot")
    assert keys == {**base, "security": {"keys": {"file": "/etc/brimful/keys"}}}
    scaling = spot["llm_configs"][0]["deployment_config"]["autoscaling_config"]
    assert scaling["min_replicas"] == 2
    scaling["min_replicas"] = 1
    assert spot == base
    many = entry("many-models")
    assert many == base
    apart = entry("disaggregated")
    (model,) = apart["llm_configs"]
    assert model["engine_kwargs"].pop("kv_transfer_config")["kv_role"] == "kv_both"
    assert model["batching"].pop("roles")["prefill"] == "auto"
    model["deployment_config"]["autoscaling_config"]["min_replicas"] = 1
    assert apart == base


@pytest.mark.parametrize("set_before", [False, True])
def test_ray_tells_engines_where_nixl_meets(set_before, monkeypatch):
    """What the header of k8s/overlays/disaggregated says of ports; variables in a pod win."""
    from ray.llm._internal.serve.engines.vllm.kv_transfer import base, nixl
    from ray.serve.llm import LLMConfig

    context = SimpleNamespace(rank=SimpleNamespace(rank=3))
    monkeypatch.setattr(base.serve, "get_replica_context", lambda: context)
    monkeypatch.setattr(nixl.ray.util, "get_node_ip_address", lambda: "10.0.0.7")
    for key, value in (("HOST", "10.0.0.9"), ("PORT", "5600")):
        name = f"VLLM_NIXL_SIDE_CHANNEL_{key}"
        monkeypatch.setenv(name, value)  # as it was, once the test is over
        if not set_before:
            monkeypatch.delenv(name)
    service = the("RayService", documents("disaggregated"))
    (app,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    ours = {"batching", "scaling"}
    (entry,) = app["args"]["llm_configs"]
    config = LLMConfig(**{key: value for key, value in entry.items() if key not in ours})
    config.engine_kwargs["tensor_parallel_size"] = 2

    nixl.NixlConnectorBackend(config).setup()

    meets = "10.0.0.9-5600" if set_before else "10.0.0.7-20006"
    assert config.engine_kwargs["kv_transfer_config"]["engine_id"].endswith(meets)
