"""Clocks that end the longest answer before its last token are noted, with what they cut."""

from typing import Any

import pytest

from serve_app.checks.clocks import seconds
from serve_app.checks.findings import Findings
from serve_app.checks.manifest import check_documents
from tests.manifests import HEAD, HEAD_PLACE, set_env, with_serve
from tests.serve_configs import at, config, having, put

SHORT = ("http_options", "request_timeout_s")
LENGTH = "engine_kwargs.max_model_len"
ANSWER = "at 50 ms, and an answer may have 16384 (819 s): longer ones are cut"
STREAMED = f"{ANSWER} unless they are streamed"
INGRESS = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}
SERVE = {"name": "brimful-serve-svc", "port": {"number": 8000}}
REF = {"name": "brimful-serve-svc", "port": 8000}
RULE = {"host": "llm", "http": {"paths": [{"pathType": "Prefix", "backend": {"service": SERVE}}]}}


def clocks(*documents: dict[str, Any]) -> list[str]:
    findings = Findings()
    check_documents(list(documents), findings)
    assert findings.problems == []
    return [note for note in findings.notes if "is enough for" in note]


def made(kind: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
    meta = {"name": "llm", "annotations": annotations}
    return {"apiVersion": "x.example/v1", "kind": kind, "metadata": meta, "spec": spec}


def ingress(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {**made("Ingress", {"rules": [RULE], **spec}, **annotations), **INGRESS}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({LENGTH: 16384}, "400 tokens at 50 ms, and an answer may have 16384 (819 s)"),
        ({LENGTH: 16384, "/args.security": {"limits": {"max_tokens": 1000}}},
         "400 tokens at 50 ms, and an answer may have 1000 (50 s)"),
        ({"engine_kwargs.override_generation_config": {"max_new_tokens": 500}},
         "400 tokens at 50 ms, and an answer may have 500 (25 s)"),
        ({"/args.security": {"limits": {"max_tokens": 400}}}, None),
        ({"classes": {"chat": {"itl_ms": 50, "default": True}, "slow": {"itl_ms": 100}},
          LENGTH: 4096},
         "200 tokens at 100 ms, and an answer may have 4096 (410 s)"),
        # Neither is given: what is assumed says less than what is cut.
        ({"batching": {}}, "1000 tokens at 20 ms, and an answer may have 8192 (164 s)"),
    ],
)  # fmt: skip
def test_a_timeout_of_requests_is_held_against_the_longest_answer(check, changes, said):
    data = having("//http_options.request_timeout_s", 20, config())
    for path, value in changes.items():
        data = having(path, value, data)
    found = check(data)
    assert found.problems == []
    place = "http_options.request_timeout_s: 20 is enough for"
    notes = [note for note in found.notes if note.startswith("http_options")]
    assert notes == ([f"{place} {said}: longer ones are cut"] if said else [])
    assert not any("http_options" in n for n in check(having("//http_options", {}, data)).notes)


def test_a_replica_that_is_stopped_before_its_answers_end_is_noted(check):
    data = having(LENGTH, 16384, having("deployment_config.graceful_shutdown_timeout_s", 60))
    says = "BrimfulServer:m.graceful_shutdown_timeout_s: {} is enough for"
    (note,) = check(data).notes
    assert note.startswith(f"applications[0]: {says.format('60.0')} 1200 tokens")
    override = {"name": "BrimfulServer:m", "graceful_shutdown_timeout_s": 90}
    (note,) = check(having("/deployments", [override], data)).notes
    assert note.startswith(f"applications[0]: {says.format('90')} 1800 tokens")


def test_haproxys_own_clocks_are_noted_once(service):
    assert clocks(service) == []
    name = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
    (note,) = clocks(set_env(service, HEAD, **{name: None}))
    said = f"{HEAD_PLACE}.env.{name} (Ray's own, as none is given): '120' is enough for 2400 tokens"
    assert note.startswith(said)
    (note,) = clocks(set_env(service, HEAD, RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S="60"))
    assert note.endswith(STREAMED)


NGINX = "nginx.ingress.kubernetes.io/proxy-read-timeout"
ALB = "alb.ingress.kubernetes.io/load-balancer-attributes"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (made("HTTPRoute", {"rules": [{"timeouts": {"request": "60s"}, "backendRefs": [REF]}]}),
         f"spec.rules[0].timeouts.request: '60s' is enough for 1200 tokens {ANSWER}"),
        (made("HTTPRoute", {"rules": [{"timeouts": {"request": "0s", "backendRequest": "1m30s"},
                                       "backendRefs": [REF]}]}),
         f"spec.rules[0].timeouts.backendRequest: '1m30s' is enough for 1800 tokens {ANSWER}"),
        (made("VirtualService", {"http": [{"timeout": "60s"}]}),
         f"spec.http[0].timeout: '60s' is enough for 1200 tokens {ANSWER}"),
        (made("BackendConfig", {"timeoutSec": 40}),
         f"spec.timeoutSec: 40 is enough for 800 tokens {ANSWER}"),
        (ingress({NGINX: "600"}),
         f"metadata.annotations.{NGINX}: '600' is enough for 12000 tokens {STREAMED}"),
        (ingress({}, ingressClassName="nginx"),
         f"metadata.annotations.{NGINX} (what nginx does, as none is given): '60' is enough for"
         f" 1200 tokens {STREAMED}"),
        (ingress({ALB: "deletion_protection.enabled=true,idle_timeout.timeout_seconds=100"}),
         f"metadata.annotations.{ALB}: 'deletion_protection.enabled=true,idle_timeout"
         f".timeout_seconds=100' is enough for 2000 tokens {STREAMED}"),
    ],
    ids=lambda one: one["kind"] if isinstance(one, dict) else "",
)  # fmt: skip
def test_the_clocks_of_what_stands_before_serve_are_noted(service, before, said):
    assert clocks(service, before) == [f"document 2: {said}"]


def test_the_service_that_a_rayservice_has_kuberay_make_is_read(service):
    key = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout"
    meta = {"annotations": {key: "60"}}
    (note,) = clocks(put(service, ("spec", "serveService"), {"metadata": meta, "spec": {}}))
    said = f"spec.serveService.metadata.annotations.{key}: '60' is enough for 1200 tokens"
    assert note == f"{said} {STREAMED}"


@pytest.mark.parametrize(
    "before",
    [
        made("HTTPRoute", {"rules": [{"timeouts": {"request": "0s"}, "backendRefs": [REF]}]}),
        made("HTTPRoute", {"rules": [{"timeouts": {"request": "30m"}, "backendRefs": [REF]}]}),
        # The dashboard's.
        made("HTTPRoute", {"rules": [{"timeouts": {"request": "60s"}, "backendRefs": [
            {"name": "brimful-head-svc", "port": 8265}]}]}),
        made("HTTPProxy", {"routes": [{"timeoutPolicy": {"response": "infinity"}}]}),
        ingress({NGINX: "3600"}, ingressClassName="nginx"),
    ],
)  # fmt: skip
def test_a_clock_that_is_long_enough_or_none_or_not_serves_is_not(service, before):
    assert clocks(service, before) == []


def test_the_answers_of_a_batch_end_by_the_same_clock(check, tmp_path):
    data = having("//http_options.request_timeout_s", 12, having(LENGTH, 4096))
    args = {"serves": "http://127.0.0.1:8000/v1", "folder": str(tmp_path)}
    path = "serve_app.batches:build"
    app = {"name": "b", "route_prefix": "/b", "import_path": path, "args": args}
    data["applications"].append(app)
    (note,) = [one for one in check(data).notes if one.startswith("http_options")]
    assert note.endswith(": longer ones are cut, those of batches, too")


def test_the_embedded_configuration_is_read_with_its_overlay(service):
    (note,) = clocks(with_serve(service, SHORT, 20))
    assert note.startswith("spec.serveConfigV2.http_options.request_timeout_s: 20 is enough")
    bounded = with_serve(service, at("/args.security"), {"limits": {"max_tokens": 400}})
    assert clocks(with_serve(bounded, SHORT, 20)) == []


@pytest.mark.parametrize(
    ("given", "unit", "expected"),
    [("60s", "s", 60), ("1h30m", "s", 5400), ("500ms", "s", 0.5), (60, "s", 60), ("5000", "ms", 5),
     ("infinity", "s", 0), (None, "s", 0), ("", "s", 0), ("1.2.3s", "s", 0)],
)  # fmt: skip
def test_durations_are_read_as_their_owners_write_them(given, unit, expected):
    assert seconds(given, unit) == expected
