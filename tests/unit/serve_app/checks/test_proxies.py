"""Manifests that a cluster takes and that would not serve: proxies, probes, Services, routes."""

from typing import Any

import pytest

from serve_app.checks.findings import Findings
from serve_app.checks.manifest import check_documents
from tests.manifests import HEAD, HEAD_PLACE, SERVE_PLACE, WORKER, WORKER_PLACE, with_serve, without
from tests.serve_configs import having, put

HEAD_ONLY = (("proxy_location",), "HeadOnly")
READY = f"{WORKER_PLACE}.readinessProbe: asks Serve"
NO_PROXY = "with proxy_location HeadOnly no worker has a proxy"
HEALTH = "wget -q -O- http://localhost:8000/-/healthz | grep success"
EXEC = {"exec": {"command": ["bash", "-c", HEALTH]}}
INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}
GATEWAY = "gateway.networking.k8s.io/v1"


def found(*documents: dict[str, Any]) -> Findings:
    findings = Findings()
    check_documents(list(documents), findings)
    return findings


def test_a_worker_whose_readiness_asks_serve_needs_a_proxy(service):
    head_only = with_serve(service, *HEAD_ONLY)
    (problem,) = found(head_only).problems
    assert problem.startswith(f"{READY}, and {NO_PROXY}: the pod never becomes ready")
    (problem,) = found(without(head_only, (*WORKER, "readinessProbe"))).problems
    assert problem.startswith(f"{READY} (KubeRay's own, as none is given), and {NO_PROXY}")
    ray_alone = {"httpGet": {"path": "/api/healthz", "port": 52365}}
    alone = put(head_only, (*WORKER, "readinessProbe"), ray_alone)
    assert found(alone).problems == []
    excluded = put(alone, ("spec", "excludeHeadPodFromServeSvc"), True)
    (problem,) = found(excluded).problems
    assert problem.startswith("spec.excludeHeadPodFromServeSvc: True is not allowed")
    assert found(put(service, ("spec", "excludeHeadPodFromServeSvc"), True)).problems == []


def test_applications_that_are_asked_by_http_need_a_proxy(check):
    (problem,) = check(having("//proxy_location", "Disabled")).problems
    assert problem.startswith("proxy_location: 'Disabled' is not allowed")


def test_serve_has_to_listen_for_what_comes_from_outside_the_pod(service):
    (problem,) = found(with_serve(service, ("http_options", "host"), "127.0.0.1")).problems
    assert problem.startswith(f"{SERVE_PLACE}.http_options.host: '127.0.0.1' is not allowed")


@pytest.mark.parametrize(
    "asks",
    [
        EXEC,
        {"httpGet": {"path": "/-/healthz", "port": 8000}},
        {"httpGet": {"path": "/v1/models", "port": "serve"}},
        {"tcpSocket": {"port": 8000}},
    ],
    ids=lambda asks: str(next(iter(asks.values())))[:40],
)
@pytest.mark.parametrize("key", ["livenessProbe", "startupProbe"])
def test_a_probe_that_ends_a_worker_while_its_model_loads_is_named(service, key, asks):
    probe = {**asks, "initialDelaySeconds": 30, "periodSeconds": 5, "failureThreshold": 3}
    (problem,) = found(put(service, (*WORKER, key), probe)).problems
    waits_s = 15 if key == "livenessProbe" else 45
    assert problem.startswith(f"{WORKER_PLACE}.{key}: asks Serve")
    assert f"after {waits_s} s without one" in problem
    patient = found(put(service, (*WORKER, key), {**probe, "failureThreshold": 240}))
    assert patient.problems == []
    assert any(note.startswith(f"{WORKER_PLACE}.{key}: asks Serve") for note in patient.notes)


def test_a_head_that_waits_for_serve_is_never_given_it(service):
    (problem,) = found(put(service, (*HEAD, "readinessProbe"), EXEC)).problems
    says = "asks Serve, which KubeRay deploys once the head is ready: never"
    assert problem.startswith(f"{HEAD_PLACE}.readinessProbe: {says}")
    (problem,) = found(put(service, (*HEAD, "livenessProbe"), EXEC)).problems
    assert problem.startswith(f"{HEAD_PLACE}.livenessProbe: asks Serve, which answers while")


def test_every_container_of_a_pod_is_read(service):
    sidecar = {"name": "auth", "image": "auth", "startupProbe": EXEC}
    beside = put(service, WORKER[:-1], [*_at(service, WORKER[:-1]), sidecar])
    (problem,) = found(beside).problems
    assert problem.startswith(f"{WORKER_PLACE[:-3]}[1].startupProbe: asks Serve")


def test_a_probe_at_another_port_than_serves_is_named(service):
    probe = {"httpGet": {"path": "/-/healthz", "port": 8001}}
    (problem,) = found(put(service, (*WORKER, "readinessProbe"), probe)).problems
    says = "readinessProbe: 8001 is not allowed: http_options.port is 8000"
    assert problem == f"{WORKER_PLACE}.{says}"


# --- what leads to Serve


def ingress(name: str, port: dict[str, Any]) -> dict[str, Any]:
    backend = {"service": {"name": name, "port": port}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    rules = [{"http": {"paths": [path]}}]
    return {**INGRESS, "metadata": {"name": "llm"}, "spec": {"rules": rules}}


def route(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": GATEWAY, "kind": kind, "metadata": {"name": "llm"}, "spec": spec}


def made_service(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llm"}, "spec": spec}


BACKEND = "document 2: spec.rules[0].http.paths[0].backend.service"
MISSPELT = "'brimful-serv-svc' is not in this manifest; did you mean 'brimful-serve-svc'?"
PORT_80 = "80 is not allowed: Service brimful-serve-svc has port 8000"
REF = {"name": "brimful-serve-svc", "port": 80}
HOST = {"host": "brimful-serve-svc.llm.svc.cluster.local", "port": {"number": 80}}


@pytest.mark.parametrize(
    ("leads", "says"),
    [
        (ingress("brimful-serve-svc", {"number": 80}), f"{BACKEND}.port: {PORT_80}"),
        (ingress("brimful-serve-svc", {"name": "http"}), f"{BACKEND}.port: 'http' is not allowed"),
        (ingress("brimful-serv-svc", {"number": 8000}), f"{BACKEND}.name: {MISSPELT}"),
        (ingress("brimful-head-svc", {"number": 8256}), f"{BACKEND}.port: 8256 is not allowed"),
        ({**INGRESS, "metadata": {"name": "llm"}, "spec": {"defaultBackend":
            {"service": {"name": "brimful-serve-svc", "port": {"number": 80}}}}},
         f"document 2: spec.defaultBackend.service.port: {PORT_80}"),
        (route("GRPCRoute", {"rules": [{"backendRefs": [{"name": "brimful-serv-svc"}]}]}),
         f"document 2: spec.rules[0].backendRefs[0].name: {MISSPELT}"),
        (route("VirtualService", {"http": [{"route": [{"destination": HOST}]}]}),
         f"document 2: spec.http[0].route[0].destination.port: {PORT_80}"),
        (route("HTTPProxy", {"routes": [{"services": [REF]}]}),
         f"document 2: spec.routes[0].services[0].port: {PORT_80}"),
        (route("HorizontalPodAutoscaler", {"scaleTargetRef": {"kind": "RayService"}}),
         "document 2: spec.scaleTargetRef.kind: 'RayService' is not allowed"),
    ],
)  # fmt: skip
def test_what_leads_to_no_port_or_service_is_named(service, leads, says):
    (problem,) = found(service, leads).problems
    assert problem.startswith(says)


@pytest.mark.parametrize(
    "leads",
    [
        ingress("brimful-serve-svc", {"number": 8000}),
        ingress("brimful-serve-svc", {"name": "serve"}),
        ingress("brimful-head-svc", {"number": 8265}),
        route("HTTPRoute", {"rules": [{"backendRefs": [
            {"kind": "InferencePool", "name": "brimful-serv-svc"},
            {"name": "brimful-serv-svc", "namespace": "elsewhere"}]}]}),
        route("VirtualService", {"http": [{"route": [
            {"destination": {"host": "brimful-serv-svc.example.com"}}]}]}),
        ingress("ssl-redirect", {"name": "use-annotation"}),
        made_service({"selector": {"app.kubernetes.io/created-by": "kuberay-operator"},
                      "ports": [{"port": 8000}]}),
    ],
)  # fmt: skip
def test_what_leads_to_a_service_of_kuberays_passes(service, leads):
    result = found(service, leads)
    assert (result.problems, [n for n in result.notes if "no Service" in n]) == ([], [])


def test_the_ports_of_the_service_that_kuberay_makes_are_those_it_is_told(service):
    ports = [{"name": "serve", "port": 80, "targetPort": 8000}]
    told = put(service, ("spec", "serveService"), {"spec": {"ports": ports}})
    grpc = [{"name": "serve", "containerPort": 8000}, {"name": "serve-grpc", "containerPort": 9000}]
    told = put(told, (*HEAD, "ports"), grpc)
    for port in (80, 9000):
        assert found(told, ingress("brimful-serve-svc", {"number": port})).problems == []


def test_of_several_rayservices_the_one_that_a_service_chooses_counts(service):
    alone = put(service, (*WORKER, "readinessProbe"), {"exec": {"command": ["true"]}})
    other = put(with_serve(alone, *HEAD_ONLY), ("metadata", "name"), "other")
    leads = made_service({"selector": {"ray.io/node-type": "worker"}, "ports": [{"port": 8000}]})
    assert found(service, other, leads).problems == []


def test_a_service_that_may_be_elsewhere_is_noted(service):
    result = found(service, ingress("gateway", {"number": 80}))
    assert result.problems == []
    assert any(f"{BACKEND}: 'gateway' is no Service of this manifest" in n for n in result.notes)


def test_a_service_of_ones_own_leads_to_a_port_and_a_proxy(service):
    labels = {"ray.io/node-type": "worker"}
    own = made_service({"selector": labels, "ports": [{"port": 80}]})
    (problem,) = found(service, own).problems
    assert problem.startswith("document 2: spec.ports[0].port: 80 is not allowed: the pods have")
    serve = put(own, ("spec", "ports", 0, "targetPort"), 8000)
    assert found(service, serve).problems == []
    grpc = with_serve(service, ("grpc_options",), {"port": 9000})
    assert found(grpc, put(own, ("spec", "ports", 0, "targetPort"), 9000)).problems == []
    named = put(own, ("spec", "ports", 0, "targetPort"), "serve")
    alone = put(service, (*WORKER, "readinessProbe"), {"exec": {"command": ["true"]}})
    for leads in (serve, named):
        (problem,) = found(with_serve(alone, *HEAD_ONLY), leads).problems
        assert problem.startswith("document 2: spec.ports[0].targetPort: ") and NO_PROXY in problem


def policy(*ingress: dict[str, Any]) -> dict[str, Any]:
    own = {"from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "brimful"}}}]}
    spec = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [own, *ingress]}
    meta = {"name": "llm"}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta,
            "spec": spec}  # fmt: skip


OPERATOR = {"from": [{"namespaceSelector": {}}], "ports": [{"port": 8265}]}
CLIENTS = {"from": [{"podSelector": {}}], "ports": [{"port": "serve"}]}
TO_HEAD = "document 2: spec.ingress: lets nobody else to port {} of headGroupSpec"


@pytest.mark.parametrize(
    ("rules", "closed"),
    [
        ((), (8265, 8000)),
        ((CLIENTS,), (8265,)),
        ((OPERATOR,), (8000,)),
        ((OPERATOR, CLIENTS), ()),
        (({"ports": [{"port": 8000, "endPort": 9000}]},), ()),
        (({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},), ()),
    ],
)
def test_a_policy_that_lets_in_no_operator_or_no_client_is_noted(service, rules, closed):
    result = found(service, policy(*rules))
    assert result.problems == []
    notes = [note for note in result.notes if "lets nobody else" in note]
    said = zip(notes, map(TO_HEAD.format, closed), strict=True)
    assert all(note.startswith(each) for note, each in said)


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        value = value[part]
    return value
