"""Ray Serve's REST interface: what runs, what is to run, and whether it is up."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import requests

from controller.errors import BrimfulError
from replicas.server.proxies import go_past

Data = dict[str, Any]
POLL_S = 1.0
SETTLED = 2  # times in a row that a change is up, as it shows a moment after it was sent
REACHED_IN_A_ROW = 10
AWAY_S = 60.0  # how long Ray's interface may not answer while applications change
# KubeRay's name for the group of the head, which Ray keeps as a label of the node.
GROUP, OPERATORS = "ray.io/node-group", "headgroup"


class ClusterError(BrimfulError):
    """Ray did not start, or an application did not come up; has Ray's message."""


class Cluster:
    """A Ray cluster at the address of its dashboard.

    Raises:
        BrimfulError: nothing answers there.
    """

    def __init__(self, address: str) -> None:
        from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

        go_past(address)
        try:
            self._client = ServeSubmissionClient(address)
        except (ConnectionError, RuntimeError, ValueError, requests.RequestException) as error:
            line = str(error).partition("\n")[0]
            raise BrimfulError(f"no Ray dashboard answers at {address}: {line}") from None

    def _details(self) -> Data:
        try:
            told: Data = self._client.get_serve_details()
        except (RuntimeError, requests.RequestException) as error:
            raise BrimfulError(f"Ray Serve does not answer: {error}") from None
        return told

    def applications(self, names: Iterable[str] | None = None) -> dict[str, Data]:
        """By name, as ``GET /api/serve/applications/`` has them; of ``names``, those that are
        there.
        """
        told: dict[str, Data] = self._details()["applications"]
        return told if names is None else {name: told[name] for name in names if name in told}

    def http(self) -> tuple[str, int]:
        """Host and port at which Serve was told to answer."""
        options = self._details()["http_options"]
        return str(options["host"]), int(options["port"])

    def by_kuberay(self) -> bool:
        """Whether KubeRay's operator owns the cluster; it would undo a change from here."""
        try:
            answer = self._client._do_request("GET", "/api/v0/nodes?detail=1")
            nodes = answer.json()["data"]["result"]["result"]
        except (RuntimeError, ValueError, KeyError, TypeError, requests.RequestException):
            return False  # Ray has another version of the state interface
        return any((node.get("labels") or {}).get(GROUP) == OPERATORS for node in nodes)

    def put(self, config: Data) -> None:
        """Have Serve run these applications and no others.

        Raises:
            ClusterError: it refuses.
        """
        try:
            self._client.deploy_applications(config)
        except (RuntimeError, requests.RequestException) as error:
            raise ClusterError(f"Ray Serve refused it: {error}") from None

    def wait(self, names: list[str], timeout_s: float) -> None:
        """Wait until these applications run as they were sent.

        Raises:
            BrimfulError: one failed, or does not run after this time.
        """
        for _ in range(SETTLED):
            time.sleep(POLL_S)
            for _ in starting(lambda: self.applications(names), timeout_s):
                continue


def beside(running: Mapping[str, Data], applications: Mapping[str, Data]) -> list[Data]:
    """These applications, and all other running ones as they were deployed."""
    kept = {
        name: told["deployed_app_config"]
        for name, told in running.items()
        if told.get("deployed_app_config") is not None
    }
    return list({**kept, **applications}.values())


def starting(
    read: Callable[[], Mapping[str, Data]], timeout_s: float | None = None
) -> Iterator[str]:
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


def settled(app: Data) -> bool:
    """Whether an application runs with all its replicas."""
    return app["status"] == "RUNNING" and all(
        d["status"] == "HEALTHY" for d in app["deployments"].values()
    )


def describe(applications: Mapping[str, Data]) -> str:
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
