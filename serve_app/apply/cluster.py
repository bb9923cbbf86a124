"""Ray Serve's REST interface: what runs, and what is to run."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import requests

from controller.errors import BrimfulError
from replicas.server.proxies import go_past

Data = dict[str, Any]
SETTLED, POLL_S = 2, 1.0  # reads in a row: a change shows a moment after it was sent
# KubeRay's name for the group of the head, which Ray keeps as a label of the node.
GROUP, OPERATORS = "ray.io/node-group", "headgroup"


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

    def applications(self) -> dict[str, Data]:
        """By name, as ``GET /api/serve/applications/`` has them."""
        try:
            told: Data = self._client.get_serve_details()["applications"]
        except (RuntimeError, requests.RequestException) as error:
            raise BrimfulError(f"Ray Serve does not answer: {error}") from None
        return told

    def http(self) -> tuple[str, int]:
        """Host and port at which Serve was told to answer."""
        try:
            options: Data = self._client.get_serve_details()["http_options"]
        except (RuntimeError, requests.RequestException) as error:
            raise BrimfulError(f"Ray Serve does not answer: {error}") from None
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
            BrimfulError: it refuses.
        """
        try:
            self._client.deploy_applications(config)
        except (RuntimeError, requests.RequestException) as error:
            raise BrimfulError(f"Ray Serve refused it: {error}") from None

    def wait(
        self,
        names: list[str],
        timeout_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait until these applications run as they were sent.

        Raises:
            BrimfulError: one failed, or does not run after this time.
        """
        until_s, settled, waits = time.monotonic() + timeout_s, 0, ""
        while settled < SETTLED:
            if time.monotonic() > until_s:
                raise BrimfulError(f"not up after {timeout_s:g} s: {waits}")
            sleep(POLL_S)
            told = self.applications()
            waits = next((w for name in names if (w := _waits(name, told))), "")
            settled = 0 if waits else settled + 1


def beside(running: Mapping[str, Data], applications: Mapping[str, Data]) -> list[Data]:
    """These applications, and all other running ones as they were deployed."""
    kept = {
        name: told["deployed_app_config"]
        for name, told in running.items()
        if told.get("deployed_app_config") is not None
    }
    return list({**kept, **applications}.values())


def _waits(name: str, applications: dict[str, Data]) -> str:
    """What an application still waits for; nothing if it is up.

    Raises:
        BrimfulError: it failed.
    """
    one = applications.get(name) or {}
    if one.get("status") == "DEPLOY_FAILED":
        raise BrimfulError(f"{name}: DEPLOY_FAILED: {one.get('message')}")
    for deployment, told in (one.get("deployments") or {}).items():
        if told.get("status") != "HEALTHY":
            return f"{deployment} of {name}: {told.get('status')}: {told.get('message')}"
    return "" if one.get("status") == "RUNNING" else f"{name}: {one.get('status')}"
