"""What ``brimful-haproxy`` writes; what HAProxy makes of it is in tests/ray."""

import json
import math
from pathlib import Path

import pytest
import yaml

from serve_app import haproxy
from serve_app.haproxy_watch import AFTER_MANAGER_S, LONGEST_S, serves_until_s

WRITTEN = """defaults
    errorfile 502 /ray/500.http
    errorfile 503 /ray/500.http
    errorfile 504 /ray/500.http
frontend http_frontend
    http-request return status 503 lf-string "Ingress request router failed: x"
    # Static routing based on path prefixes in decreasing length
    use_backend app
"""


def test_what_haproxy_answers_by_itself_is_a_whole_answer_to_repeat() -> None:
    head, _, body = haproxy.no_replica().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    headers = dict(line.split(": ") for line in lines)
    assert status == "HTTP/1.1 503 Service Unavailable"
    assert int(headers["Content-Length"]) == len(body)
    assert (headers["Retry-After"], headers["retry-after-ms"]) == ("1", "1000")
    assert json.loads(body)["error"]["code"] == 503


@pytest.mark.parametrize("needed", [False, True])
def test_a_router_is_passed_by_unless_it_is_needed(needed: bool) -> None:
    ours = haproxy.changed(WRITTEN, Path("/b/503.http"), router_needed=needed)
    assert ours.count("/b/503.http") == 3
    assert ("Ingress request router failed" in ours) == needed
    lines = ours.splitlines()
    assert lines[-3:-1] == [haproxy.WAIT.rstrip("\n"), WRITTEN.splitlines()[-2]]


def test_a_script_is_changed_once() -> None:
    written = f"local function call_router(router, x)\n{haproxy.BEFORE}r)\n{haproxy.ASKED}x)\n"
    ours = haproxy.changed_script(written)
    assert "response = ask_router(router, x)" in ours
    assert haproxy.changed_script(ours) == ours


def test_the_manifest_sets_what_the_local_cluster_sets() -> None:
    manifest = Path(__file__).parents[3] / "k8s" / "base" / "rayservice.yaml"
    cluster = yaml.safe_load(manifest.read_text())["spec"]["rayClusterConfig"]
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in head["env"]}
    assert haproxy.ENVIRONMENT.items() <= env.items()
    assert Path(env[haproxy.OURS]).name == haproxy.COMMAND


@pytest.mark.parametrize(
    ("manager_ended_s", "told_to_end", "until_s"),
    [
        (None, False, 5 + LONGEST_S),
        (30.0, False, 30 + AFTER_MANAGER_S),
        (5 + LONGEST_S, False, 5 + LONGEST_S),
        (30.0, True, math.inf),
    ],
)
def test_a_haproxy_that_took_over_serves_until_ray_has_another(
    manager_ended_s: float | None, told_to_end: bool, until_s: float
) -> None:
    assert serves_until_s(5.0, manager_ended_s, told_to_end=told_to_end) == until_s
