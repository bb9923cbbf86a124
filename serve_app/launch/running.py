"""Whether applications are up, from Ray Serve's REST interface."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import requests

from controller.errors import BrimfulError

REACHED_IN_A_ROW = 10
POLL_S = 1.0
AWAY_S = 60.0  # how long Ray's interface may not answer while applications change

Applications = dict[str, Any]


class ClusterError(BrimfulError):
    """Ray did not start, or an application did not come up; has Ray's message."""


def starting(read: Callable[[], Applications], timeout_s: float | None = None) -> Iterator[str]:
    """Yield the pending state once a second, until every application runs with all its replicas.

    Args:
        read: the applications to wait for, by name, as in ``GET /api/serve/applications/``.
        timeout_s: None: no limit.

    Raises:
        ClusterError: a replica failed to start, or the time ran out.
    """
    began_s, state = time.monotonic(), ""
    while timeout_s is None or time.monotonic() < began_s + timeout_s:
        applications = read()
        for name, app in applications.items():
            for deployment in app["deployments"].values():
                if "failed to start" in deployment["message"]:
                    raise ClusterError(f"application {name}:\n{deployment['message']}")
            if app["status"] == "DEPLOY_FAILED":
                raise ClusterError(f"application {name} failed:\n{app['message']}")
        if applications and all(map(settled, applications.values())):
            return
        state = describe(applications)
        yield state
        time.sleep(POLL_S)
    raise ClusterError(f"not running within {timeout_s:.0f} s: {state}")


def settled(app: dict[str, Any]) -> bool:
    """Whether an application runs with all its replicas."""
    return app["status"] == "RUNNING" and all(
        d["status"] == "HEALTHY" for d in app["deployments"].values()
    )


def describe(applications: Applications) -> str:
    """How many replicas of each application are in which state."""
    parts = []
    for name, app in applications.items():
        states = [r["state"] for d in app["deployments"].values() for r in d.get("replicas", [])]
        counts = ", ".join(f"{states.count(s)} {s.lower()}" for s in sorted(set(states)))
        parts.append(f"{name} {app['status'].lower()} ({counts or 'no replica'})")
    return "; ".join(parts) or "Ray Serve"


def wait_reached(base_url: str, timeout_s: float = 60.0) -> None:
    """Return once HAProxy knows an application: Ray calls it running a moment before.

    While HAProxy restarts with its routes, the old process may still accept connections.

    Raises:
        ClusterError: HAProxy does not know it within this time.
    """
    until_s, in_a_row = time.monotonic() + timeout_s, 0
    while time.monotonic() < until_s:
        reached = False
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(f"{base_url}/models", timeout=30)
            reached = answer.ok or answer.status_code == 401  # its middleware requires a key
        in_a_row = in_a_row + 1 if reached else 0
        if in_a_row == REACHED_IN_A_ROW:
            return
        time.sleep(0.1)
    raise ClusterError(f"HAProxy did not reach {base_url} within {timeout_s:.0f} s")
