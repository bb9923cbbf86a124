"""A Ray cluster of this machine's own, started, deployed to, and stopped by the demo and tests."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import requests

from controller.errors import BrimfulError
from serve_app import haproxy

NICENESS = 15  # of replicas and engines, below a client on the same machine; what Ray does, too
AUTH_MODE = "RAY_AUTH_MODE"
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
# How often Ray looks after itself: as shipped, a cluster at rest takes an eighth of two cores.
SELDOM = {
    "REPORTER_UPDATE_INTERVAL_MS": "30000",  # the dashboard's figures of each process; 5 s
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": "2",  # 0.1
    "RAY_DASHBOARD_AGGREGATOR_AGENT_CHECK_MAIN_THREAD_LIVENESS_INTERVAL_SECONDS": "1",  # 0.1
    "RAY_raylet_report_resources_period_milliseconds": "1000",  # to the GCS; 100
    "RAY_raylet_check_gc_period_milliseconds": "1000",  # 100
    "RAY_memory_monitor_refresh_ms": "1000",  # 250
    "RAY_task_events_report_interval_ms": "10000",  # for `ray list tasks`; 1,000
    "RAY_io_context_monitor_probe_interval_ms": "10000",  # 1,000
}
# What direct streaming needs in every Ray process, and what keeps an engine on CPU at home.
ENVIRONMENT = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "1",
    # Of Ray's four, on two cores, each wakes for a few chunks at a time.
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    **haproxy.ENVIRONMENT,
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "HF_HUB_OFFLINE": "1",
    "RAY_worker_niceness": str(NICENESS),
    # Ray wants a token on every call as soon as the user has one, which a first ray.init() makes.
    # This cluster is gone in minutes and its REST interface is on loopback.
    AUTH_MODE: "disabled",
    # Else the node drains for 30 s when it is ended, and Serve starts its replicas anew meanwhile.
    DRAIN: "0",
    **SELDOM,
}
POLL_S = 0.2
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
REACHED_IN_A_ROW = 10


class ClusterError(BrimfulError):
    """Ray did not start, or an application did not come up; says what Ray said."""


class LocalCluster:
    """A one-node Ray cluster in subprocesses; ``local_cluster`` makes one.

    Attributes:
        gcs_address: for ``ray.init`` and ``RAY_ADDRESS``.
        dashboard_url: Ray's REST interface, which ``serve deploy`` talks to.
    """

    def __init__(
        self,
        environment: dict[str, str],
        directory: Path,
        logs: Path,
        cpus: int,
        gpus: int | None = None,
        resources: dict[str, float] | None = None,
    ) -> None:
        gcs_port, dashboard_port, client_port = _free_ports(3)
        self.gcs_address = f"127.0.0.1:{gcs_port}"
        self.dashboard_url = f"http://127.0.0.1:{dashboard_port}"
        self.environment = {**os.environ, **environment, "RAY_ADDRESS": self.gcs_address}
        launcher = haproxy.write_launcher(logs / haproxy.COMMAND)
        self.environment.setdefault(haproxy.OURS, str(launcher))
        # A busy machine's proxy takes longer than Ray's 5 s: Ray ends it then, and deploys nothing.
        self.environment.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        self.log_path = logs / "ray.log"
        command = ["ray", "start", "--head", "--block", "--disable-usage-stats"]
        command += [f"--port={gcs_port}", f"--num-cpus={cpus}"]
        command += [f"--ray-client-server-port={client_port}", "--include-dashboard=true"]
        command += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard_port}"]
        # It would read every process's log ten times a second, for drivers that want it printed.
        command += ["--include-log-monitor=false"]
        command += [] if gpus is None else [f"--num-gpus={gpus}"]
        command += [f"--resources={json.dumps(resources or {})}"]
        # Ray refuses to start under another cluster's address.
        start_environment = {k: v for k, v in self.environment.items() if k != "RAY_ADDRESS"}
        self._log = self.log_path.open("w")
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            env=start_environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            # Out of the way of Ctrl-C, yet in this session: Linux gives each session an equal share
            # of the cores, and niceness counts only inside of one.
            process_group=0,
        )

    @property
    def pid(self) -> int:
        """The process that all others of the cluster descend from."""
        return self._process.pid

    def wait_started(self) -> None:
        """Return once Ray's REST interface answers.

        Raises:
            ClusterError: Ray ended, or does not answer within two minutes.
        """
        until_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until_s:
            if self._process.poll() is not None:
                raise ClusterError(f"Ray did not start; it said:\n{self.log_path.read_text()}")
            with contextlib.suppress(requests.RequestException):
                if requests.get(f"{self.dashboard_url}/api/version", timeout=5).ok:
                    return
            time.sleep(POLL_S)
        raise ClusterError(f"Ray did not answer within {START_TIMEOUT_S} s; see {self.log_path}")

    def deploy(self, config: Path) -> None:
        """``serve deploy``; returns when Ray took the file, not when replicas run.

        Raises:
            ClusterError: Ray refused the file.
        """
        done = subprocess.run(
            ["serve", "deploy", str(config), "--address", self.dashboard_url],
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ClusterError(f"serve deploy {config} failed:\n{done.stdout}{done.stderr}")

    def applications(self) -> dict[str, Any]:
        """What Ray's REST interface says of each application, by name."""
        answer = requests.get(f"{self.dashboard_url}/api/serve/applications/", timeout=30)
        answer.raise_for_status()
        return answer.json()["applications"]

    def wait_running(self, timeout_s: float, progress: Callable[[str], None]) -> None:
        """Return once every application runs with all its replicas.

        Args:
            progress: told what is being waited for, whenever that changes.

        Raises:
            ClusterError: a replica failed to start, or the time ran out.
        """
        until_s, state = time.monotonic() + timeout_s, ""
        while time.monotonic() < until_s:
            applications = self.applications()
            for name, app in applications.items():
                for deployment in app["deployments"].values():
                    if "failed to start" in deployment["message"]:
                        raise ClusterError(f"application {name}:\n{deployment['message']}")
                if app["status"] == "DEPLOY_FAILED":
                    raise ClusterError(f"application {name} failed:\n{app['message']}")
            if applications and all(map(_settled, applications.values())):
                return
            now = _describe(applications)
            if now != state:
                progress(now)
                state = now
            time.sleep(1)
        raise ClusterError(f"not running within {timeout_s:.0f} s: {state}; see {self.log_path}")

    def stop(self) -> None:
        """End what was started, replicas and engines too."""
        children = _descendants(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        gone_s = time.monotonic() + STOP_TIMEOUT_S / 3
        while time.monotonic() < gone_s and any(c.is_running() for c in children):
            time.sleep(0.2)
        for child in children:
            # is_running compares start times too: a number used again is not our process.
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.is_running():
                    child.kill()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._log.close()


@contextlib.contextmanager
def local_cluster(
    environment: dict[str, str] | None = None,
    *,
    directory: Path | None = None,
    logs: Path | None = None,
    cpus: int = 2,
    gpus: int | None = None,
    resources: dict[str, float] | None = None,
) -> Iterator[LocalCluster]:
    """A cluster for a ``with`` block; everything it started is gone after it.

    Args:
        environment: added to ``ENVIRONMENT`` for every Ray process.
        directory: where Ray's processes run, so what a relative path starts from.
        cpus: what Ray believes the node has.
        gpus: likewise; None: those that it finds.
        resources: likewise, of other kinds.
    """
    logs = logs or Path(tempfile.mkdtemp(prefix="brimful-"))
    cluster = LocalCluster(
        {**ENVIRONMENT, **(environment or {})}, directory or Path.cwd(), logs, cpus, gpus, resources
    )
    before = os.environ.get(AUTH_MODE)
    os.environ[AUTH_MODE] = ENVIRONMENT[AUTH_MODE]  # for ray.init() of this process
    try:
        cluster.wait_started()
        yield cluster
    finally:
        cluster.stop()
        if before is None:
            os.environ.pop(AUTH_MODE, None)
        else:
            os.environ[AUTH_MODE] = before


def wait_reached(base_url: str, timeout_s: float = 60.0) -> None:
    """Return once HAProxy knows an application: Ray calls it running a moment before.

    While HAProxy starts anew with its routes, the process before it may still accept connections.

    Raises:
        ClusterError: it does not within this time.
    """
    until_s, in_a_row = time.monotonic() + timeout_s, 0
    while time.monotonic() < until_s:
        reached = False
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(f"{base_url}/models", timeout=30)
            reached = answer.ok or answer.status_code == 401  # its door asks for a key
        in_a_row = in_a_row + 1 if reached else 0
        if in_a_row == REACHED_IN_A_ROW:
            return
        time.sleep(0.1)
    raise ClusterError(f"HAProxy did not reach {base_url} within {timeout_s:.0f} s")


def _settled(app: dict[str, Any]) -> bool:
    return app["status"] == "RUNNING" and all(
        d["status"] == "HEALTHY" for d in app["deployments"].values()
    )


def _describe(applications: dict[str, Any]) -> str:
    parts = []
    for name, app in applications.items():
        states = [r["state"] for d in app["deployments"].values() for r in d.get("replicas", [])]
        counts = ", ".join(f"{states.count(s)} {s.lower()}" for s in sorted(set(states)))
        parts.append(f"{name} {app['status'].lower()} ({counts or 'no replica yet'})")
    return "; ".join(parts) or "Ray Serve"


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
