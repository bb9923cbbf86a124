"""A Ray head and a worker as nodes of their own on this machine, the head's knowledge in Redis.

A node is ``ray start`` and all that comes of it. It ends as a pod does that is gone: every process
at once, by SIGKILL.
"""

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import requests
import yaml

from serve_app import haproxy
from serve_app.launch.local_cluster import ENVIRONMENT
from tests.ray.conftest import REPO, free_ports

MARK = "BRIMFUL_TEST_NODE"  # in the environment of all processes of a node
START_S = 120.0
# What `ray start` believes to be running already on the machine; a new pod has no such file.
LAST_CLUSTER = Path("/tmp/ray/ray_current_cluster")


class Node:
    """A running ``ray start`` with what it started.

    Args:
        arguments: of ``ray start``.
        log: what it says.
    """

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self._mark = uuid.uuid4().hex
        self._log = log
        self._process = subprocess.Popen(
            ["ray", "start", "--block", "--disable-usage-stats", *arguments],
            cwd=REPO,
            env={**environment, MARK: self._mark},
            stdout=log.open("a"),
            stderr=subprocess.STDOUT,
            process_group=0,
        )

    def require_alive(self) -> None:
        """Raises AssertionError where ``ray start`` has ended."""
        assert self._process.poll() is None, self._log.read_text()

    def kill(self) -> None:
        """SIGKILL to every process, first to the one that would start or stop others."""
        # Some leave the tree, as HAProxy; others overwrite their environment with their title.
        known: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            known = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        while found := [one for one in {*known, *psutil.process_iter()} if self._has(one, known)]:
            for one in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    known += one.children(recursive=True)
                    one.kill()
            time.sleep(0.1)
        self._process.wait()

    def _has(self, one: psutil.Process, known: list[psutil.Process]) -> bool:
        with contextlib.suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE:
                of_group = os.getpgid(one.pid) == self._process.pid
                return of_group or one in known or one.environ().get(MARK) == self._mark
        return False


class TwoNodes:
    """Redis, a head without CPUs, and a worker.

    Attributes:
        base_url: of the worker's own HAProxy.
        gcs_address: of the head, for ``--address``.
    """

    def __init__(self, folder: Path, worker_cpus: int) -> None:
        ports = free_ports(13)
        self._redis_port, gcs, self._dashboard, client, self.head_port, worker_port = ports[:6]
        self.gcs_address = f"127.0.0.1:{gcs}"
        self.base_url = f"http://127.0.0.1:{worker_port}"
        self._folder, self._worker_cpus = folder, worker_cpus
        launcher = haproxy.write_launcher(folder / haproxy.COMMAND)
        mine = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        self.environment = {
            **mine,
            **ENVIRONMENT,
            haproxy.OURS: str(launcher),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_REDIS_ADDRESS": f"127.0.0.1:{self._redis_port}",
            # As k8s/components/redis has it for workers.
            "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
            # Pods have cores of their own: nothing of a node gives way to others on the machine.
            "RAY_worker_niceness": "0",
            # Ports that pods have each for themselves.
            "RAY_SERVE_WORKER_PROXY_HTTP_PORT": str(worker_port),
            "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(ports[6]),
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": "32000",
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": "32100",
        }
        self._head_arguments = [
            *("--head", f"--port={gcs}", f"--ray-client-server-port={client}", "--num-cpus=0"),
            *("--num-gpus=0", "--include-dashboard=true", "--include-log-monitor=false"),
            *("--dashboard-host=127.0.0.1", f"--dashboard-port={self._dashboard}"),
        ]
        self._agents, self._metrics, self._stats = ports[7:9], ports[9:11], ports[11:13]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """All three for a ``with`` block."""
        with contextlib.ExitStack() as stack:
            redis = subprocess.Popen(
                [
                    *("redis-server", "--port", str(self._redis_port), "--bind", "127.0.0.1"),
                    *("--save", "", "--dir", str(self._folder), "--daemonize", "no"),
                ],
                stdout=subprocess.DEVNULL,
            )
            stack.callback(redis.wait)
            stack.callback(redis.kill)
            stack.callback(lambda: self.head.kill())
            self.start_head()
            address = f"--address={self.gcs_address}"
            self.worker = self._node(
                1, [address, f"--num-cpus={self._worker_cpus}", "--num-gpus=0"]
            )
            stack.callback(lambda: self.worker.kill())
            yield

    def start_head(self) -> None:
        """Start it, for the first time or anew; returns when its REST interface answers."""
        LAST_CLUSTER.unlink(missing_ok=True)
        self.head = self._node(0, self._head_arguments)
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            self.head.require_alive()
            with contextlib.suppress(requests.RequestException):
                if self._get("/api/version").ok:
                    return
            time.sleep(0.2)
        raise AssertionError("the head's REST interface never answered")

    def deploy(self, *applications: dict[str, Any]) -> None:
        """``serve deploy``; returns when Ray took it."""
        config = {
            "proxy_location": "EveryNode",
            "http_options": {"host": "127.0.0.1", "port": self.head_port},
            "applications": list(applications),
        }
        path = self._folder / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        command = ["serve", "deploy", str(path), "--address", f"http://127.0.0.1:{self._dashboard}"]
        subprocess.run(command, env=self.environment, check=True)

    def serve(self) -> dict[str, Any]:
        """What Ray Serve's REST interface says; nothing where it does not answer."""
        with contextlib.suppress(requests.RequestException):
            answer = self._get("/api/serve/applications/")
            if answer.ok:
                return dict(answer.json())
        return {"applications": {}, "proxies": {}}

    def state(self, what: str) -> list[dict[str, Any]]:
        """``ray list actors`` or ``nodes``."""
        answer = self._get(f"/api/v0/{what}?detail=1&limit=1000")
        answer.raise_for_status()
        return list(answer.json()["data"]["result"]["result"])

    def _get(self, path: str) -> requests.Response:
        return requests.get(f"http://127.0.0.1:{self._dashboard}{path}", timeout=30)

    def _node(self, number: int, arguments: list[str]) -> Node:
        ports = {
            "RAY_SERVE_HAPROXY_METRICS_PORT": str(self._metrics[number]),
            "RAY_SERVE_HAPROXY_STATS_PORT": str(self._stats[number]),
        }
        agent = f"--dashboard-agent-listen-port={self._agents[number]}"
        log = self._folder / f"node-{number}.log"
        return Node([*arguments, agent], {**self.environment, **ports}, log)
