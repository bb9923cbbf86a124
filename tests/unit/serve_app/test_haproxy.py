"""What ``brimful-haproxy`` writes; tests/ray has HAProxy's side."""

import math
import subprocess
from pathlib import Path

import pytest

from serve_app import haproxy
from serve_app.haproxy_watch import (
    AFTER_MANAGER_S,
    AGAIN,
    AGAIN_PID,
    LONGEST_S,
    serves_until_s,
    take_over,
)

WRITTEN = """global
    stats socket /tmp/admin.sock mode 666 level admin expose-fd listeners
defaults
    mode http
    errorfile 502 /ray/500.http
    errorfile 503 /ray/500.http
    errorfile 504 /ray/500.http
frontend prometheus
    bind :9101
    mode http
frontend http_frontend
    bind *:8000
    http-request return status 503 lf-string "Ingress request router failed: x"
    # Static routing based on path prefixes in decreasing length
    use_backend app
listen stats
  bind *:8404
  stats enable
"""


@pytest.mark.parametrize("needed", [False, True])
def test_a_router_is_passed_by_unless_it_is_needed(needed: bool) -> None:
    ours = haproxy.changed(WRITTEN, Path("/b"), router_needed=needed)
    assert ours.count("/b/brimful-503.http") == 3
    assert ("Ingress request router failed" in ours) == needed
    assert haproxy.WAIT + haproxy.DEADLINE + haproxy.ROUTES in ours


def test_statistics_metrics_and_admin_are_for_this_machine_and_user_alone() -> None:
    ours = haproxy.changed(WRITTEN, Path("/b"), router_needed=False)
    assert "frontend prometheus\n    bind 127.0.0.1:9101\n" in ours
    assert "listen stats\n  bind 127.0.0.1:8404\n" in ours
    assert "frontend http_frontend\n    bind *:8000\n" in ours
    assert "stats socket /tmp/admin.sock mode 600 level admin" in ours


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


@pytest.mark.parametrize("ours", [True, False])
def test_only_a_haproxy_that_took_over_is_told_to_end(tmp_path: Path, ours: bool) -> None:
    (tmp_path / "haproxy.cfg").write_text("")
    (tmp_path / AGAIN).write_text("")
    command = ["tail", "-f", str(tmp_path / AGAIN)] if ours else ["sleep", "infinity"]
    with subprocess.Popen(command) as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            pass  # the kernel has it a moment after the call to start it has returned
        (tmp_path / AGAIN_PID).write_text(str(process.pid))
        arguments = take_over(tmp_path / "haproxy.cfg", ["-db"])
        process.kill()
    assert arguments == (["-db", "-sf", str(process.pid)] if ours else ["-db"])
    assert not (tmp_path / AGAIN_PID).exists()
