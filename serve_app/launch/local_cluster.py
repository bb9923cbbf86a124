"""A Ray cluster of this machine's own: started, deployed to, and stopped."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import requests
import yaml

from replicas.server.proxies import go_past
from serve_app import haproxy
from serve_app.apply.cluster import Cluster, ClusterError, starting
from serve_app.environment import ON_CPU, STREAMING

NICENESS = (
    15  # niceness of replicas and engines, below a client on the same machine; Ray's own value too
)
AUTH_MODE = "RAY_AUTH_MODE"
DRAIN = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
# Less frequent housekeeping of Ray: by default, an idle cluster takes an eighth of two cores.
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
# Variables that direct streaming needs in every Ray process, and an engine on CPU.
ENVIRONMENT = {
    **STREAMING,
    # Ray's default is four: on two cores, each wakes for a few chunks at a time.
    "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    **haproxy.ENVIRONMENT,
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    **ON_CPU,
    "HF_HUB_OFFLINE": "1",
    "RAY_worker_niceness": str(NICENESS),
    # Ray requires a token on every call once the user has one, and a first ray.init() makes one.
    # This cluster lives for minutes, and its REST interface is on loopback.
    AUTH_MODE: "disabled",
    # Else the node drains for 30 s at its end, and Serve starts new replicas meanwhile.
    DRAIN: "0",
    **SELDOM,
}
POLL_S = 0.2
SAID = 2000  # characters of Ray's output in an error
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
LOG_DIR = "--log_dir="  # of Ray's GCS
ENDS = (signal.SIGTERM, signal.SIGHUP)
USUAL_PORTS = (6379, 8265, 10001)  # of the GCS, the dashboard, and Ray's clients
METRICS = "RAY_SERVE_HAPROXY_METRICS_PORT"
# The other ports of Ray Serve on a machine. They are fixed, and its HTTP servers set SO_REUSEPORT:
# a second cluster on this machine would answer the first one's requests (with a 404). So each
# cluster has a block of its own, above Ray's own (30000 to 31000) and below the ports of clients.
SERVE_PORTS = (
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    METRICS,
    "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT",
)
LAST_PORT = "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT"
BLOCK = 200
BLOCKS = range(31_100, 32_700, BLOCK)


class LocalCluster:
    """A one-node Ray cluster in subprocesses; ``local_cluster`` makes one.

    Args:
        environment: for every Ray process, in addition to this one's.
        directory: where Ray's processes run, so what a relative path starts from.
        logs: the folder of Ray's own output, and of the command that starts HAProxy.
        cpus, gpus: what Ray believes the node has; None: what it finds.
        resources: likewise, of other kinds.
        usual_ports: use Ray's default ports if they are free, where other commands look for it.

    Attributes:
        gcs_address: for ``ray.init`` and ``RAY_ADDRESS``.
        dashboard_url: Ray's REST interface, which ``serve deploy`` talks to.
    """

    def __init__(
        self,
        environment: dict[str, str],
        directory: Path,
        logs: Path,
        cpus: int | None = None,
        gpus: int | None = None,
        resources: dict[str, float] | None = None,
        *,
        usual_ports: bool = False,
    ) -> None:
        go_past()
        gcs_port, dashboard_port, client_port = _ports(USUAL_PORTS) if usual_ports else _ports()
        self.gcs_address = f"127.0.0.1:{gcs_port}"
        self.dashboard_url = f"http://127.0.0.1:{dashboard_port}"
        self.environment = {**os.environ, **environment, "RAY_ADDRESS": self.gcs_address}
        launcher = haproxy.write_launcher(logs / haproxy.COMMAND)
        self.environment.setdefault(haproxy.OURS, str(launcher))
        if usual_ports:  # the one of them that others read
            self.environment.setdefault(METRICS, str(_ports((9101,))[0]))
        self._block, ports = serve_ports()
        self.environment = {**ports, **self.environment}
        # Ray's limit of 5 s is too short for a busy machine's proxy: Ray would end it.
        self.environment.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        self.log_path = logs / "ray.log"
        command = ["ray", "start", "--head", "--block", "--disable-usage-stats"]
        command += [f"--port={gcs_port}"]
        command += [f"--ray-client-server-port={client_port}", "--include-dashboard=true"]
        command += ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard_port}"]
        # It would read every process's log ten times a second, for drivers that want it printed.
        command += ["--include-log-monitor=false"]
        command += [] if cpus is None else [f"--num-cpus={cpus}"]
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
            # Not in the process group of Ctrl-C, but in this session: Linux gives each session an
            # equal share of the cores, and niceness counts only within one.
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
                raise ClusterError(f"Ray did not start; it said:\n{self.said}")
            with contextlib.suppress(requests.RequestException):
                answer = requests.get(f"{self.dashboard_url}/api/version", timeout=5)
                if answer.ok or answer.status_code == 401:  # it asks for the user's token
                    return
            time.sleep(POLL_S)
        raise ClusterError(f"Ray did not answer within {START_TIMEOUT_S} s; it said:\n{self.said}")

    @property
    def said(self) -> str:
        """The end of Ray's output. Its file is removed with a cluster that did not start."""
        return self.log_path.read_text(errors="replace")[-SAID:]

    def deploy(self, config: Path) -> None:
        """Deploy a Serve config; returns when Ray took it, not when replicas run.

        Raises:
            BrimfulError: Ray refused it.
        """
        Cluster(self.dashboard_url).put(yaml.safe_load(config.read_text()))

    @property
    def session_logs(self) -> Path:
        """Where Ray's processes write; only once it was started."""
        said = (arg for one in _descendants(self.pid) for arg in one.cmdline())
        return Path(next(arg for arg in said if arg.startswith(LOG_DIR)).removeprefix(LOG_DIR))

    @property
    def ended(self) -> bool:
        """Whether Ray has ended."""
        return self._process.poll() is not None

    def applications(self) -> dict[str, Any]:
        """The applications by name, from Ray's REST interface."""
        return Cluster(self.dashboard_url).applications()

    def wait_running(self, timeout_s: float, progress: Callable[[str], None]) -> None:
        """Return once every application runs with all its replicas.

        Args:
            progress: called with what the cluster waits for, whenever that changes.

        Raises:
            ClusterError: a replica failed to start, or the time ran out.
        """
        cluster, state = Cluster(self.dashboard_url), ""
        for now in starting(cluster.applications, timeout_s):
            if now != state:
                progress(now)
                state = now

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
            # is_running compares start times too: a reused process id is not our process.
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.is_running():
                    child.kill()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._log.close()
        self._block.close()


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
        gpus: likewise; None: what it finds.
        resources: likewise, of other kinds.
    """
    end_as_by_ctrl_c()
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


def end_as_by_ctrl_c() -> None:
    """Make SIGTERM and SIGHUP end this process as Ctrl-C does; some shells make it ignore SIGINT.

    Shells that are not interactive do so for background processes. If SIGHUP is ignored
    (`nohup`), it stays ignored.
    """
    if threading.current_thread() is threading.main_thread():
        for one in ENDS:
            if signal.getsignal(one) is not signal.SIG_IGN:
                signal.signal(one, signal.default_int_handler)


def this_machine() -> dict[str, float]:
    """The resources of a node that ``ray start`` would make here."""
    from ray._private.resource_and_label_spec import ResourceAndLabelSpec

    found = ResourceAndLabelSpec().resolve(is_head=True, node_ip_address="127.0.0.1")
    return dict(found.to_resource_dict())


def use_token() -> None:
    """Make a cluster that is started here require the user's token, as `ray start` would.

    This process then sends it, too.
    """
    from ray._private.authentication import authentication_token_setup as setup

    setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def require_free(port: int, key: str) -> None:
    """Check that this port of the loopback address is free.

    Args:
        key: the setting that names another port.

    Raises:
        ClusterError: another process listens on it.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OverflowError:
            raise ClusterError(f"{key}: {port} is not allowed: at most 65535") from None
        except OSError:
            raise ClusterError(
                f"port {port} is in use: stop what listens there, or change {key}"
            ) from None


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def serve_ports() -> tuple[socket.socket, dict[str, str]]:
    """Variables with a block of ports that no other cluster of ours has on this machine.

    It is taken until the socket closes. No variables: all blocks are taken, and Ray's own ports
    are left.
    """
    mark = socket.socket()  # at the block's first port, which nothing else uses
    for first in BLOCKS:
        with contextlib.suppress(OSError):
            mark.bind(("127.0.0.1", first))
            ports = {name: str(first + k) for k, name in enumerate(SERVE_PORTS, start=1)}
            return mark, {**ports, LAST_PORT: str(first + BLOCK)}
    return mark, {}


def _ports(wanted: tuple[int, ...] = (0, 0, 0)) -> list[int]:
    """Free ports: these if they are free, else (and for 0) any."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in wanted]
        for one, port in zip(sockets, wanted, strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Ray's sockets will
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
