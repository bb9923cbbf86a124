"""The RayService of k8s/base, and findings on a broken one and on other objects."""

import re
from typing import Any

import pytest
import yaml

from serve_app.checks.routes import seconds
from serve_app.environment import DIRECT_STREAMING, HA_PROXY
from tests.manifests import (
    BASE,
    CLUSTER,
    HEAD,
    HEAD_PLACE,
    ROOT,
    SERVE_PLACE,
    WORKER,
    WORKER_PLACE,
    WORKERS,
    WORKERS_PLACE,
    load,
    set_env,
    with_serve,
    without,
)
from tests.serve_configs import Path as KeyPath
from tests.serve_configs import at, config, having, put, refused, unknown

START_S = 600  # weights over a network and compiled kernels
MISSING = "required key is missing"
SERVE = ("spec", "serveConfigV2")
POD = (*WORKERS, "template", "spec")
PLACE, NAME = f"{SERVE_PLACE}.applications[0]", "BrimfulServer:llama-3_1-8b"
AUTO = "deployment_config.autoscaling_config"
HEAD_ONLY = (("proxy_location",), "HeadOnly")
HEALTH = {"exec": {"command": ["bash", "-c", "wget -O- http://localhost:8000/-/healthz"]}}


@pytest.fixture
def found(check):
    """What is found in a manifest of these documents."""
    return lambda *documents: check(yaml.safe_dump_all(documents))


def test_the_base_passes_and_is_described(check):
    found = check((BASE / "rayservice.yaml").read_text())
    assert (found.problems, found.notes) == ([], [])
    assert found.summary == [
        "llama at /: model llama-3.1-8b, policy adaptive, 50 ms between tokens and 2000 ms to the"
        " first token at p99, 4 to 1024 running, 1 to 8 replicas"
    ]


def test_the_base_gives_every_replica_a_worker_and_streams_time_to_end(service):
    (app,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    options = app["args"]["llm_configs"][0]["deployment_config"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    scaling, pod = options["autoscaling_config"], group["template"]["spec"]
    assert group["minReplicas"] <= scaling["min_replicas"]
    assert group["maxReplicas"] == scaling["max_replicas"]
    (worker,) = pod["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    told = worker["lifecycle"]["preStop"]["exec"]["command"][-1]
    deadline_s = int(re.search(r"drain-node .*seconds (\d+)", told)[1])
    # Serve starts others first only while more than the drain is left until the deadline.
    assert deadline_s >= START_S + options["graceful_shutdown_timeout_s"]
    assert int(re.search(r"seq (\d+)", told)[1]) >= deadline_s
    assert pod["terminationGracePeriodSeconds"] > deadline_s


def test_kustomize_names_the_image_of_every_ray_container_and_it_has_the_manifests_ray(service):
    (image,) = load(BASE / "kustomization.yaml")["images"]
    cluster = service["spec"]["rayClusterConfig"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {pod["template"]["spec"]["containers"][0]["image"] for pod in pods}
    assert images == {image["name"]}
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"ARG RAY_VERSION={cluster['rayVersion']}\n" in dockerfile
    assert "haproxy_binary())')\" -v" in dockerfile


BROKEN: list[tuple[KeyPath, Any, str]] = [
    (POD, {}, f"{WORKERS_PLACE}.template.spec.containers: {MISSING}"),
    (("spec", "serveConfig"), "", unknown("spec", "serveConfig", "serveConfigV2")),
    ((*WORKER, "imagePullPolic"), "Always",
     unknown(WORKER_PLACE, "imagePullPolic", "imagePullPolicy")),
    ((*WORKER, "resources", "limits", "memory"), "96 Gi",
     f"{WORKER_PLACE}.resources.limits.memory: "),
    ((*WORKER, "env"), True, refused(f"{WORKER_PLACE}.env", True, "must be a list")),
    ((*HEAD, "env", 0, "value"), 1,
     refused(f"{HEAD_PLACE}.env[0].value", 1, "must be a string (quote it)")),
    (SERVE, "applications: [", f"{SERVE_PLACE}: line 1, column 16: not "),
    (SERVE, {"applications": []},
     f"{SERVE_PLACE}: required: a Serve configuration as a block of text (`|`)"),
    # The switches of direct streaming, which Ray reads in every process.
    ((*WORKER, "env"), [], refused(f"{WORKER_PLACE}.env.{HA_PROXY}", None, "the head has '1'")),
    # Probes that ask Serve.
    ((*WORKER, "livenessProbe"), HEALTH,
     f"{WORKER_PLACE}.livenessProbe: asks Serve, which answers while a replica is ready: after 30"),
    ((*WORKER, "startupProbe"), {"tcpSocket": {"port": "serve"}, "failureThreshold": 9},
     f"{WORKER_PLACE}.startupProbe: asks Serve, which answers while a replica is ready: after 90"),
    ((*HEAD, "readinessProbe"), HEALTH,
     f"{HEAD_PLACE}.readinessProbe: asks Serve, which KubeRay deploys only once the head is ready"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "begins"), BROKEN, ids=lambda one: str(one)[-40:])
def test_a_fault_in_the_manifest_is_named_with_its_place(found, service, path, value, begins):
    problems = found(put(service, path, value)).problems
    assert any(problem.startswith(begins) for problem in problems), problems


def test_the_embedded_config_is_checked_down_to_our_blocks(found, service):
    broken = with_serve(service, at("batching.sla.itl_msec"), 3)
    broken = with_serve(broken, at("deployment_config.max_queud_requests"), 3)
    # A model in the image is not looked for here.
    broken = with_serve(broken, at("model_loading_config.model_source"), "/models/llama")
    entry = f"{PLACE}.args.llm_configs[0]"
    assert set(found(broken).problems) == {
        unknown(f"{entry}.deployment_config", "max_queud_requests", "max_queued_requests"),
        unknown(f"{entry}.batching.sla", "itl_msec", "itl_ms"),
    }


def test_an_exported_object_passes_and_of_several_each_is_named(found, service):
    off = {HA_PROXY: None, DIRECT_STREAMING: None}
    exported = set_env(
        set_env(without(service, (*WORKERS, "minReplicas")), HEAD, **off), WORKER, **off
    )
    exported = put(exported, (*WORKERS, "template", "metadata"), None)
    exported |= {"status": {"activeServiceStatus": {}}}
    exported["metadata"] |= {"uid": "0", "managedFields": [{"fieldsV1": {"f:spec": {}}}]}
    assert found(exported).problems == []
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    assert found(other).problems == ["kind: there is no RayService in it, only ConfigMap"]
    says = f"document 2: {unknown('spec', 'suspende', 'suspend')}"
    assert found(other, put(service, ("spec", "suspende"), True)).problems == [says]


# --- room and time

TENSOR = at("engine_kwargs.tensor_parallel_size")
GROWS = (*CLUSTER, "enableInTreeAutoscaling")


@pytest.mark.parametrize(
    ("serve", "cluster", "says"),
    [
        ({TENSOR: 8}, {}, None),
        ({TENSOR: 16}, {}, f"{PLACE}: a replica of {NAME} asks for 16 GPU of 8 in all groups"),
        ({TENSOR: 8}, {GROWS: False}, f"{PLACE}: a replica of {NAME} asks for 8 GPU of 1 in all"),
        # What KubeRay starts where nothing adds workers.
        ({TENSOR: 8}, {GROWS: False, (*WORKERS, "minReplicas"): 8}, None),
        ({TENSOR: 8}, {GROWS: False, (*WORKERS, "replicas"): 9, (*WORKERS, "suspend"): True},
         f"{PLACE}: a replica of {NAME} asks for 1 CPU of 0 and 8 GPU of 0 in all groups"),
        # A pod without limits has what its node has.
        ({TENSOR: 16}, {(*WORKER, "resources"): {}}, None),
        ({TENSOR: 16}, {(*WORKERS, "rayStartParams"): {"num-gpus": "2"}}, None),
        ({at(AUTO): {"min_replicas": 9, "max_replicas": 9}}, {},
         f"{SERVE_PLACE}: the replicas ask for at least 9 GPU of 8 in all groups"),
    ],
    ids=str,
)  # fmt: skip
def test_replicas_that_no_workers_can_hold_are_named(found, service, serve, cluster, says):
    for path, value in serve.items():
        service = with_serve(service, path, value)
    for path, value in cluster.items():
        service = put(service, path, value)
    problems = found(service).problems
    assert [one.startswith(says or "-") for one in problems] == ([True] if says else [])


def test_pods_that_end_before_their_streams_are_noted(found, service):
    drained = ["bash", "-c", "ray drain-node --deadline-remaining-seconds 1800; sleep 1800"]
    short = without(service, (*POD, "terminationGracePeriodSeconds"))
    short = put(short, (*WORKER, "lifecycle", "preStop", "exec", "command"), drained)
    drain = "graceful_shutdown_timeout_s (1800)"
    assert found(short).notes == [
        f"{WORKERS_PLACE}.template.spec.terminationGracePeriodSeconds: 30 is below {drain}: streams"
        " are cut when a node is drained",
        f"{WORKERS_PLACE}.template.spec: a drain of 1800 s is no longer than {drain}: replicas stop"
        " at once, before others have started",
    ]


LENGTH = "engine_kwargs.max_model_len"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({LENGTH: 16384}, "400 tokens at 50 ms, and an answer may have 16384 (819 s)"),
        ({LENGTH: 16384, "/args.security": {"limits": {"max_tokens": 1000}}},
         "400 tokens at 50 ms, and an answer may have 1000 (50 s)"),
        ({"/args.security": {"limits": {"max_tokens": 400}}}, None),
        ({"classes": {"chat": {"itl_ms": 50, "default": True}, "slow": {"itl_ms": 100}},
          LENGTH: 4096},
         "200 tokens at 100 ms, and an answer may have 4096 (410 s)"),
        # Neither is given: what is assumed says less than what is cut.
        ({"batching": {}}, "1000 tokens at 20 ms, and an answer may have 8192 (164 s)"),
    ],
    ids=str,
)  # fmt: skip
def test_a_timeout_of_requests_is_held_against_the_longest_answer(check, changes, said):
    data = having("//http_options.request_timeout_s", 20, config())
    for path, value in changes.items():
        data = having(path, value, data)
    place = "http_options.request_timeout_s: 20 is enough for"
    assert check(data).notes == ([f"{place} {said}: longer answers are cut"] if said else [])
    assert check(having("//http_options", {}, data)).notes == []


def test_clocks_of_a_drain_of_haproxy_and_of_a_route_are_held_against_it(check, found, service):
    data = having(LENGTH, 16384, having("deployment_config.graceful_shutdown_timeout_s", 60))
    (note,) = check(data).notes
    says = "applications[0]: BrimfulServer:m.graceful_shutdown_timeout_s: 60.0 is enough for 1200"
    assert note.startswith(says)
    name = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
    (note,) = found(set_env(service, HEAD, **{name: None})).notes
    said = f"{HEAD_PLACE}.env.{name} (Ray's default): '120' is enough for 2400 tokens"
    assert note.startswith(said)
    other = {"timeouts": {"request": "9s"}, "backendRefs": [{"name": "brimful-head-svc"}]}
    slow = {"timeouts": {"request": "0s", "backendRequest": "1m30s"}, "backendRefs": [REF]}
    (note,) = found(service, route("HTTPRoute", {"rules": [other, slow]})).notes
    place = "document 2: spec.rules[1].timeouts.backendRequest: '1m30s' is enough for 1800 tokens"
    assert note == f"{place} at 50 ms, and an answer may have 16384 (819 s): longer answers are cut"
    assert [seconds(one) for one in ("1h30m", 60, "infinity", None, "")] == [5400, 60, 0, 0, 0]


# --- proxies, ports, and what leads to Serve


def test_a_worker_whose_readiness_asks_serve_needs_a_proxy(found, service):
    head_only, probe = with_serve(service, *HEAD_ONLY), (*WORKER, "readinessProbe")
    asks = f"{WORKER_PLACE}.readinessProbe: asks Serve"
    for bad in (head_only, without(head_only, probe)):
        (problem,) = found(bad).problems
        assert problem.startswith(asks) and "with proxy_location HeadOnly no worker has" in problem
    ray_alone = {"httpGet": {"path": "/api/healthz", "port": 52365}}
    assert found(put(head_only, probe, ray_alone)).problems == []


def test_serve_on_a_port_that_pods_do_not_name_is_named(found, service):
    moved = with_serve(service, ("http_options", "port"), 9000)
    says = "8000 is not allowed: http_options.port is 9000"
    assert found(moved).problems == [
        f"{HEAD_PLACE}.ports.serve: {says}",
        f"{WORKER_PLACE}.ports.serve: {says}",
    ]
    # A worker with a probe of its own need not name it; of the head and of KubeRay's probe it is
    # 8000 where none is named.
    bare = put(put(moved, (*WORKER, "ports"), []), (*HEAD, "ports"), [])
    assert found(bare).problems == [f"{HEAD_PLACE}.ports.serve: {says}"]
    assert len(found(without(bare, (*WORKER, "readinessProbe"))).problems) == 2
    assert found(put(service, (*WORKER, "ports"), [])).problems == []


REF = {"name": "brimful-serve-svc", "port": 8000}
GATEWAY, NETWORKING = "gateway.networking.k8s.io/v1", "networking.k8s.io/v1"
MISSPELT = "'brimful-serv-svc' is not in this manifest; did you mean 'brimful-serve-svc'?"
PORT_80 = "80 is not allowed: Service brimful-serve-svc has port 8000 or serve"
BACKEND = "spec.rules[0].http.paths[0].backend.service"


def route(kind: str, spec: dict[str, Any], version: str = GATEWAY) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "llm"}, "spec": spec}


def ingress(service: str, **port: Any) -> dict[str, Any]:
    backend = {"service": {"name": service, "port": port}}
    rules = [{"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]
    return route("Ingress", {"rules": rules}, NETWORKING)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (ingress("brimful-serve-svc", number=80), f"{BACKEND}.port: {PORT_80}"),
        (ingress("brimful-serve-svc", name="http"), f"{BACKEND}.port: 'http' is not allowed"),
        (ingress("brimful-serv-svc", number=8000), f"{BACKEND}.name: {MISSPELT}"),
        (ingress("brimful-serve-svc", name="serve"), None),
        (ingress("ssl-redirect", name="use-annotation"), None),
        (route("GRPCRoute", {"rules": [{"backendRefs": [{"name": "brimful-serv-svc"}]}]}),
         f"spec.rules[0].backendRefs[0].name: {MISSPELT}"),
        (route("HTTPRoute", {"rules": [{"backendRefs": [{**REF, "port": 80}]}]}),
         f"spec.rules[0].backendRefs[0].port: {PORT_80}"),
        (route("HTTPRoute", {"rules": [{"backendRefs": [
            {"kind": "InferencePool", "name": "brimful-serv-svc"},
            {"name": "brimful-serv-svc", "namespace": "elsewhere"}]}]}), None),
    ],
)  # fmt: skip
def test_what_stands_beside_a_rayservice_is_held_against_it(found, service, other, says):
    problems = found(service, other).problems
    assert [one.startswith(f"document 2: {says}") for one in problems] == ([True] if says else [])


def test_the_ports_of_the_service_that_kuberay_makes_are_those_it_is_told(found, service):
    ports = [{"name": "web", "port": 80, "targetPort": 8000}]
    told = put(service, ("spec", "serveService"), {"spec": {"ports": ports}})
    assert found(told, ingress("brimful-serve-svc", number=80)).problems == []
