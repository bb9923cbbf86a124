"""Ray nodes on this machine as pods are: each sees its own processes alone, and ends as a whole.

A head without CPUs and workers, as KubeRay starts them. What a node of a cluster has for itself and
these share are ports, so each gets its own.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import requests
import yaml

from serve_app import haproxy
from serve_app.launch.local_cluster import AUTH_MODE
from serve_app.launch.running import starting
from tests.ray.conftest import REPO, SOON, free_ports
from tests.unit.k8s.conftest import documents, the

START_S, DEPLOY_S = 300.0, 600.0
ISOLATED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class Pod:
    """A running ``ray start`` with what it started.

    Args:
        arguments: of ``ray start``.
        log: what it says.

    Attributes:
        agent_port: of Ray's agent, which probes ask.
        port: of HAProxy; of a head it is what the Serve configuration says.
    """

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.agent_port, metrics, stats, self.port = free_ports(4)
        self._log = log
        self._environment = {
            **environment,
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(stats),
            "RAY_SERVE_WORKER_PROXY_HTTP_PORT": str(self.port),
        }
        agent = f"--dashboard-agent-listen-port={self.agent_port}"
        start = ["ray", "start", "--block", "--disable-usage-stats", agent, *arguments]
        self._process = subprocess.Popen(
            [*ISOLATED, *start],
            cwd=REPO,
            env=self._environment,
            stdout=log.open("a"),
            stderr=subprocess.STDOUT,
            process_group=0,
        )

    def require_alive(self) -> None:
        """Raises AssertionError where ``ray start`` has ended."""
        assert self._process.poll() is None, self._log.read_text()

    def exec(
        self, command: list[str], timeout_s: float, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        """``kubectl exec``: run it inside, with the environment of the container."""
        (first,) = psutil.Process(self._process.pid).children()
        return subprocess.run(
            ["nsenter", f"--target={first.pid}", "--pid", "--mount", *command],
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def kill(self) -> None:
        """SIGKILL to every process of it: they go with the first one."""
        self._process.kill()
        self._process.wait()


class Pods:
    """A head and workers.

    Args:
        folder: for what they say.
        environment: of all containers.

    Attributes:
        head_port: what the Serve configuration has to say as ``http_options.port``.
        gcs_address: of the head, for ``--address``.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        gcs, self._dashboard, client, self.head_port, fallback = free_ports(5)
        self.gcs_address = f"127.0.0.1:{gcs}"
        self._folder = folder
        self._environment = {
            **{key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            AUTH_MODE: "disabled",
            # Pods have cores of their own: nothing of one gives way to others on the machine.
            "RAY_worker_niceness": "0",
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
            **SOON,
            "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",  # 30
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback),
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": "32000",
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": "32100",
            **environment,
        }
        self._head_arguments = [
            *("--head", f"--port={gcs}", f"--ray-client-server-port={client}", "--num-cpus=0"),
            *("--num-gpus=0", "--include-dashboard=true", "--include-log-monitor=false"),
            *("--dashboard-host=127.0.0.1", f"--dashboard-port={self._dashboard}"),
        ]
        self._running: list[Pod] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A head for a ``with`` block; all pods that were started in it are gone after it."""
        try:
            self.start_head()
            yield
        finally:
            for pod in self._running:
                pod.kill()

    def start_head(self) -> None:
        """Start it, for the first time or anew; returns when its REST interface answers."""
        self.head = self._pod("head", self._head_arguments)
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            self.head.require_alive()
            with contextlib.suppress(requests.RequestException):
                if self._get("/api/version").ok:
                    return
            time.sleep(0.2)
        raise AssertionError("the head's REST interface never answered")

    def start_worker(self, *arguments: str) -> Pod:
        """One more, with these arguments of ``ray start``."""
        address = f"--address={self.gcs_address}"
        return self._pod("worker", [address, "--num-gpus=0", *arguments])

    def deploy(self, config: dict[str, Any]) -> None:
        """``serve deploy``; returns when Ray took it."""
        path = self._folder / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        command = ["serve", "deploy", str(path), "--address", f"http://127.0.0.1:{self._dashboard}"]
        subprocess.run(command, env=self._environment, check=True)

    def applications(self) -> dict[str, Any]:
        """What Ray Serve's REST interface says of them; nothing where it does not answer."""
        with contextlib.suppress(requests.RequestException):
            answer = self._get("/api/serve/applications/")
            if answer.ok:
                return dict(answer.json()["applications"])
        return {}

    def wait_running(self) -> None:
        """Return once every application runs with all its replicas.

        Raises:
            ClusterError: one failed, or does not within ten minutes.
        """
        for _ in starting(self.applications, DEPLOY_S):
            pass

    def state(self, what: str) -> list[dict[str, Any]]:
        """The living ``ray list actors`` or ``nodes``."""
        answer = self._get(f"/api/v0/{what}?detail=1&limit=1000")
        answer.raise_for_status()
        found = answer.json()["data"]["result"]["result"]
        return [one for one in found if one["state"] == "ALIVE"]

    def _get(self, path: str) -> requests.Response:
        return requests.get(f"http://127.0.0.1:{self._dashboard}{path}", timeout=30)

    def _pod(self, name: str, arguments: list[str]) -> Pod:
        log = self._folder / f"{name}-{len(self._running)}.log"
        self._running.append(Pod(arguments, self._environment, log))
        return self._running[-1]


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """The address of a Redis for a ``with`` block."""
    (port,) = free_ports(1)
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "--save", "", "--dir", str(folder)], stdout=subprocess.DEVNULL
    )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def containers_of(overlay: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Serve configuration of an overlay as it is rendered, and its first worker's container."""
    spec = the("RayService", documents(overlay))["spec"]
    (container,) = spec["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    return yaml.safe_load(spec["serveConfigV2"]), container


def environment_of(container: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """The variables of a container; what is a path in the image is one here."""
    here = {
        f"/home/ray/anaconda3/bin/{haproxy.COMMAND}": str(
            haproxy.write_launcher(folder / haproxy.COMMAND)
        )
    }
    return {
        one["name"]: here.get(one["value"], one["value"].replace("/models", f"{folder}/models"))
        for one in container["env"]
        if "value" in one  # the others are secrets
    }
