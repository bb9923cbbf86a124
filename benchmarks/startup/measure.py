"""One start of the demo's deployment, and one replica more: phases, CPU time, memory."""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import requests
import yaml

from benchmarks.startup.caches import prepare
from benchmarks.startup.processes import Usage, usages
from configs import shipped
from controller.errors import BrimfulError
from replicas.startup import read_phases
from serve_app.demo.client import Ask, send
from serve_app.demo.cluster import LocalCluster, local_cluster
from serve_app.demo.tiny_model import make_tiny_model

APP = "llm"
SERVER = "BrimfulServer:"
REPLICAS = 2  # of the demo; each asks Ray for one core, and one more has to find room
TIMEOUT_S = 400
POLL_S = 0.1
SETTLE_S = 4.0  # the batch controller is there, and Ray has ended what nobody needs


@dataclass(frozen=True, slots=True)
class Start:
    """What one start took.

    Args:
        state: of the caches, see ``caches.STATES``.
        executor: ``engine.executor`` of the deployment.
        ray_s: from ``ray start`` until Ray answers; before everything else here.
        phases: seconds from ``serve deploy`` to the first token, one after the other.
        replica: what the slowest replica says of its own phases, seconds.
        processes: all of the cluster's, with memory and CPU, once all is up.
        added: a replica more, from Serve's decision to the last of its first tokens; empty: none.
    """

    state: str
    executor: str
    ray_s: float
    phases: dict[str, float]
    replica: dict[str, float]
    processes: tuple[Usage, ...]
    added: dict[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """From ``serve deploy`` to the first token."""
        return sum(self.phases.values())


def start(state: str, executor: str, *, add_replica: bool = False) -> Start:
    """Deploy what ``make demo`` deploys on a cluster of its own, and end it again.

    Raises:
        BrimfulError: something did not come up.
    """
    with tempfile.TemporaryDirectory(prefix="brimful-startup-") as folder:
        logs = Path(folder)
        config = _config(executor)
        environment = prepare(state, logs / "bytecode")
        begin_s = time.monotonic()
        with local_cluster(environment, logs=logs, cpus=REPLICAS + 1) as cluster:
            ray_s = time.monotonic() - begin_s
            deployed = _deploy(cluster, config, logs)
            found = tuple(usages(os.getpid()))
            replicas = replica_actors(cluster)
            own = [_said(cluster, actor) for actor in replicas.values()]
            added = _add(cluster, config, logs) if add_replica else {}
    slowest = max(own, key=lambda phases: sum(phases.values()))
    return Start(state, executor, ray_s, deployed, slowest, found, added)


def _config(executor: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(shipped("cpu.yaml").read_text())
    entry = config["applications"][0]["args"]["llm_configs"][0]
    entry["engine"] = {"executor": executor}
    loading = entry["model_loading_config"]
    loading["model_source"] = str(make_tiny_model(Path(loading["model_source"]).absolute()))
    return config


def _deploy(cluster: LocalCluster, config: dict[str, Any], logs: Path) -> dict[str, float]:
    path = logs / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    clock = _Clock()
    cluster.deploy(path)
    clock.ends("serve deploy: Serve, HAProxy")
    _until(lambda: bool(_app(cluster)["deployments"]))
    clock.ends("application built")
    cluster.wait_running(TIMEOUT_S, lambda now: None)
    clock.ends("replicas running")
    first_tokens(_url(config), _model(config), streams=1)
    clock.ends("first token")
    time.sleep(SETTLE_S)
    return clock.phases


def _add(cluster: LocalCluster, config: dict[str, Any], logs: Path) -> dict[str, float]:
    before = set(replica_actors(cluster))
    wanted = len(before) + 1
    # Not in the arguments: another argument is another version, and all replicas would be new.
    name = next(name for name in _app(cluster)["deployments"] if name.startswith(SERVER))
    config["applications"][0]["deployments"] = [{"name": name, "num_replicas": wanted}]
    path = logs / "more.yaml"
    path.write_text(yaml.safe_dump(config))
    cluster.deploy(path)
    _until(lambda: len(replica_actors(cluster)) == wanted)
    running_s = time.time()
    (added,) = (
        actor for replica_id, actor in replica_actors(cluster).items() if replica_id not in before
    )
    # In turn, so that each replica gets two.
    first_tokens(_url(config), _model(config), streams=2 * wanted)
    token_s = time.time()
    own = _said(cluster, added)
    scheduled_s = running_s - added["start_time_s"] - sum(own.values())
    return {**own, "Ray, HTTP app, health": scheduled_s, "first token": token_s - running_s}


def _url(config: dict[str, Any]) -> str:
    options = config["http_options"]
    return f"http://{options['host']}:{options['port']}/v1"


def _model(config: dict[str, Any]) -> str:
    entry = config["applications"][0]["args"]["llm_configs"][0]
    return str(entry["model_loading_config"]["model_id"])


def first_tokens(url: str, model: str, streams: int) -> None:
    """Return when as many requests, sent at once, have been answered; HAProxy may come last.

    Raises:
        BrimfulError: they were not within ``TIMEOUT_S``.
    """
    until_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until_s:
        with contextlib.suppress(aiohttp.ClientError):
            answers = asyncio.run(send(url, model, [Ask("The river", 1)] * streams))
            if all(answer.whole for answer in answers):
                return
        time.sleep(POLL_S)
    raise BrimfulError(f"no first token within {TIMEOUT_S} s")


def _said(cluster: LocalCluster, actor: dict[str, Any]) -> dict[str, float]:
    session = requests.get(f"{cluster.dashboard_url}/api/version", timeout=30).json()
    folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / session["session_name"] / "logs"
    log = folder / actor["log_file_path"].lstrip("/")
    phases = read_phases(log.read_text())
    if phases is None:
        raise BrimfulError(f"{log} does not say how its replica started")
    return phases


def _app(cluster: LocalCluster) -> dict[str, Any]:
    app: dict[str, Any] = cluster.applications().get(APP, {"deployments": {}})
    return app


def replica_actors(cluster: LocalCluster) -> dict[str, Any]:
    """The running model replicas, by replica id (Ray's own details of each)."""
    return {
        replica["replica_id"]: replica
        for name, deployment in _app(cluster)["deployments"].items()
        if name.startswith(SERVER)
        for replica in deployment["replicas"]
        if replica["state"] == "RUNNING"
    }


def _until(done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > until_s:
            raise BrimfulError(f"not there within {TIMEOUT_S} s")
        time.sleep(POLL_S)


class _Clock:
    def __init__(self) -> None:
        self.phases: dict[str, float] = {}
        self._last_s = time.monotonic()

    def ends(self, phase: str) -> None:
        now_s = time.monotonic()
        self.phases[phase], self._last_s = now_s - self._last_s, now_s
