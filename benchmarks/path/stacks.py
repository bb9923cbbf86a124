"""The servers that ``make bench-path`` compares: the same model and engine arguments in all."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from benchmarks.live.fleet import Deployed
from benchmarks.path.processes import Tree
from benchmarks.report.document import ROOT
from serve_app.apply.cluster import ClusterError, wait_reached
from serve_app.launch.local_cluster import ENVIRONMENT, local_cluster

MODEL = "tiny"
ENGINE: dict[str, Any] = {
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "max_model_len": 512,
    "block_size": 32,
    "kv_cache_memory_bytes": 128 << 20,
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "dtype": "float32",
}
# One thread for the model: the rest of the two cores is for the path.
WORKER = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
START_TIMEOUT_S = 600
# Ray's defaults of the variables that ``make demo`` sets.
AS_SHIPPED = {
    "RAY_SERVE_HAPROXY_NBTHREAD": "4",
    "REPORTER_UPDATE_INTERVAL_MS": "5000",
    "EVENT_AGENT_REPORT_INTERVAL_SECONDS": "0.1",
    "RAY_DASHBOARD_AGGREGATOR_AGENT_CHECK_MAIN_THREAD_LIVENESS_INTERVAL_SECONDS": "0.1",
    "RAY_raylet_report_resources_period_milliseconds": "100",
    "RAY_raylet_check_gc_period_milliseconds": "100",
    "RAY_memory_monitor_refresh_ms": "250",
    "RAY_task_events_report_interval_ms": "1000",
    "RAY_io_context_monitor_probe_interval_ms": "1000",
}
# For ours, on few cores: Serve's controller sees ends, starts and scaling decisions up to half a
# second later (0.1 s by default). A start takes a second or two longer.
FEW_CORES = {"RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5"}
# The health checks of a cluster that is stopped for minutes must not fail.
BEARS_A_STOP = {
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "600",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "600",
    "RAY_health_check_failure_threshold": "1000",
}


@dataclass(frozen=True, slots=True)
class Stack:
    """One way to serve the model.

    Args:
        name: in tables, and for ``--only``.
        what: a description.
        module: of a bare vLLM server; None: Ray Serve.
        import_path: of the application's builder.
        blocks: what is added to the entry of ``llm_configs``.
        environment: of every Ray process, on top of ``serve_app.launch.local_cluster.ENVIRONMENT``.
    """

    name: str
    what: str
    module: str | None = None
    import_path: str = "serve_app:build_app"
    blocks: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


BARE = "bare"
IN_PROCESS = "bare-in-process"
RAY_DIRECT = "ray-direct"
STATIC = "static"
ADAPTIVE = "adaptive"
RAYS = "ray.serve.llm:build_openai_app"
STACKS = (
    Stack(BARE, "vLLM's API server as shipped", module="vllm.entrypoints.openai.api_server"),
    Stack(IN_PROCESS, "the same, the model in EngineCore's process", module="benchmarks.path.bare"),
    Stack(RAY_DIRECT, "Ray Serve LLM, direct streaming", None, RAYS, {}, AS_SHIPPED),
    Stack(
        STATIC,
        "ours, `static`",
        blocks={"batching": {"policy": "static"}},
        environment=FEW_CORES,
    ),
    Stack(
        ADAPTIVE,
        "ours, `adaptive`",
        blocks={"batching": {"policy": "adaptive"}},
        environment=FEW_CORES,
    ),
)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers.

    Args:
        url: ``/v1`` follows.
        tree: its processes.
    """

    stack: Stack
    url: str
    tree: Tree


@contextlib.contextmanager
def running(stack: Stack, model: Path, logs: Path) -> Iterator[Running]:
    """The server for a ``with`` block, in this process's session and at its niceness."""
    start = _ray if stack.module is None else _bare
    with start(stack, model, logs) as (url, tree):
        yield Running(stack, url, tree)


Started = tuple[str, Tree]


@contextlib.contextmanager
def _bare(stack: Stack, model: Path, logs: Path) -> Iterator[Started]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", str(stack.module), "--model", str(model)]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    for key, value in ENGINE.items():
        option = key.replace("_", "-")
        if isinstance(value, bool):
            command += [f"--{option}" if value else f"--no-{option}"]
        else:
            command += [f"--{option}", str(value)]
    environment = os.environ | ENVIRONMENT | WORKER | {"PYTHONPATH": str(ROOT)}
    log = logs / f"{stack.name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
        )
        tree = Tree(process.pid)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_ready(process, f"{url}/health", log)
            yield url, tree
        finally:
            tree.resume()
            process.terminate()
            process.wait()


def _wait_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    until_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise ClusterError(f"vLLM's server ended:\n{log.read_text()[-2000:]}")
        with contextlib.suppress(requests.RequestException):
            if requests.get(url, timeout=5).ok:
                return
        time.sleep(0.5)
    raise ClusterError(f"vLLM's server did not answer within {START_TIMEOUT_S} s; see {log}")


@contextlib.contextmanager
def _ray(stack: Stack, model: Path, logs: Path) -> Iterator[Started]:
    (port,) = free_ports(1)
    own = logs / stack.name
    own.mkdir()
    environment = {**stack.environment, **BEARS_A_STOP, "RAY_worker_niceness": "0"}
    with local_cluster(environment, directory=ROOT, logs=own, cpus=4) as cluster:
        tree = Tree(cluster.pid)
        try:
            Deployed(cluster, own, port).deploy(application(stack, model), START_TIMEOUT_S)
            wait_reached(f"http://127.0.0.1:{port}/v1")
            yield f"http://127.0.0.1:{port}", tree
        finally:
            tree.resume()


def application(stack: Stack, model: Path) -> dict[str, Any]:
    """The Serve application of one replica."""
    entry = {
        "model_loading_config": {"model_id": MODEL, "model_source": str(model)},
        "accelerator_config": {"kind": "cpu"},
        "placement_group_config": {"bundle_per_worker": {"CPU": 0.5}},
        "runtime_env": {"env_vars": WORKER},
        "engine_kwargs": ENGINE,
        "deployment_config": {
            "num_replicas": 1,
            "ray_actor_options": {"num_cpus": 0.5},
            "health_check_timeout_s": 600,
        },
        **stack.blocks,
    }
    return {
        "name": stack.name,
        "route_prefix": "/",
        "import_path": stack.import_path,
        "args": {"llm_configs": [entry]},
    }


def free_ports(count: int) -> list[int]:
    """Ports that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
