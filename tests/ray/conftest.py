"""One Ray cluster for all tests that need one: starting it and its engines takes minutes.

Files run in the order of their names. Those that deploy the same applications follow each other:
they share the replicas.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import requests
from ray.exceptions import RayError

from serve_app.apply.cluster import ClusterError, wait_reached
from serve_app.demo.tiny_model import make_tiny_model
from serve_app.launch.local_cluster import LocalCluster, local_cluster
from tests.ray.applications import MAX_NUM_SEQS, application
from tests.ray.control import replicas
from tests.ray.emulated import emulated_applications
from tests.ray.processes import naming, none_left, running_clusters

REPO = Path(__file__).parents[2]
DEPLOY_TIMEOUT_S = 900
KV_LEASE_S = 10
# Periods that tests wait for, and Ray's own.
SOON = {
    "RAY_metrics_report_interval_ms": "1000",  # 10,000
    "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",  # 10
    "RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "1",  # 10
}
LONGEST = 2048  # tokens of a request of ``pd``; the model takes no more
SLA_ITL_MS = 4.0  # below what two shared cores manage, so that Algorithm 2 has to act


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


(PORT,) = free_ports(1)


@pytest.fixture(scope="session")
def found_clusters() -> str:
    """The Ray clusters that run on this machine before there is one of these tests."""
    return running_clusters()


@pytest.fixture(scope="session")
def model_path() -> Path:
    """A tiny random-weight Llama."""
    return make_tiny_model(REPO / ".cache" / "tiny-llama")


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, found_clusters: str
) -> Iterator[LocalCluster]:
    """A running Ray cluster, this process connected to it.

    The GPU is one that Ray is told of: whose card it is can be asked, nothing can run on it.
    """
    logs = tmp_path_factory.mktemp("ray")
    ports = {
        "RAY_AUTH_TOKEN": "0" * 64,  # a user who has one, as everybody has after a ray.init()
        # Tests of the other group are beside it: nothing here gives way to them.
        "RAY_worker_niceness": "0",
        **SOON,
    }
    with contextlib.ExitStack() as running:
        ports |= running.enter_context(none_left()).environment
        with naming(found_clusters), pytest.MonkeyPatch.context() as patch:
            # What tests of engines in this process set would overrule ``kv_cache_memory_bytes``.
            patch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
            cluster = running.enter_context(
                local_cluster(ports, directory=REPO, logs=logs, cpus=8, gpus=1)
            )
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()


Deploy = Callable[..., None]


@pytest.fixture(scope="session")
def deploy(cluster: LocalCluster, found_clusters: str) -> Deploy:
    """Deploys these applications and nothing else; returns when they run.

    What runs already is not deployed again. ``beside``: the others that run go on.
    """
    running: dict[str, dict[str, Any]] = {}

    def run(*applications: dict[str, Any], beside: bool = False) -> None:
        wanted = (running if beside else {}) | {one["name"]: one for one in applications}
        if running == wanted:
            return
        before = running.copy()
        running.clear()
        config = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "127.0.0.1", "port": PORT},
            "applications": list(wanted.values()),
        }
        with naming(found_clusters):
            # As `serve deploy` does, whose process takes seconds to start.
            url = f"{cluster.dashboard_url}/api/serve/applications/"
            answer = requests.put(url, json=config, timeout=DEPLOY_TIMEOUT_S)
            if not answer.ok:
                raise ClusterError(answer.text)
            cluster.wait_running(DEPLOY_TIMEOUT_S, print)
        for one in applications:
            if one["import_path"] == "serve_app:build_app" and before.get(one["name"]) != one:
                wait_reached(base_url(one["name"]))
        running.update(wanted)

    return run


def base_url(name: str) -> str:
    """Where an application's OpenAI-compatible API is."""
    return f"http://127.0.0.1:{PORT}/{name}/v1"


def wait_reported(app: str, count: int, tries: int = 600) -> None:
    """Return once the controller has reports of so many replicas of this application.

    Ray calls a replica running when it answers; its first exchange may be a moment later.
    """
    for _ in range(tries):
        with contextlib.suppress(RayError, ValueError):
            if len(replicas(app)) == count:
                return
        time.sleep(0.2)
    raise AssertionError(f"the controller never had reports of {count} replicas of {app}")


def paper_and_static(model_path: Path, **user_config: Any) -> list[dict[str, Any]]:
    """``paper`` with two replicas beside ``static`` with one; ``user_config`` is of the former."""
    paper = application(
        "paper",
        model_path,
        deployment={"num_replicas": 2},
        batching={
            "policy": "paper",
            "sla": {"itl_ms": SLA_ITL_MS},
            "max_running": {"min": 2, "max": MAX_NUM_SEQS},
            "lease_s": 2,
            "paper": {"l0": "buffer", "epsilon_d_ms": 0.5},
        },
    )
    if user_config:
        paper["deployments"] = [{"name": "BrimfulServer:tiny-paper", "user_config": user_config}]
    static = application(
        "static", model_path, deployment={"num_replicas": 1}, batching={"policy": "static"}
    )
    return [paper, static]


@pytest.fixture
def two_apps(deploy: Deploy, model_path: Path) -> None:
    """Both of them, in one file."""
    deploy(*paper_and_static(model_path))
    wait_reported("paper", 2)
    wait_reported("static", 1)


@pytest.fixture(scope="session")
def batches_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the application ``batches`` keeps its files."""
    return tmp_path_factory.mktemp("batches")


@pytest.fixture
def emulated(deploy: Deploy, model_path: Path, batches_folder: Path) -> None:
    """Emulated accelerators for two modules, and the batch API; they start together."""
    deploy(*emulated_applications(model_path, PORT, batches_folder))
    wait_reported("overload", 1)
    wait_reported("batched", 2)


@pytest.fixture
def apart(deploy: Deploy, model_path: Path) -> None:
    """``pd``: one prefill engine and two decode engines, with KV over NIXL."""
    app = application(
        "pd", model_path, deployment={"num_replicas": 1}, batching={"sla": {"itl_ms": 200}}
    )
    (decode,) = app["args"].pop("llm_configs")
    for half, role, count in (("prefill", "kv_producer", 1), ("decode", "kv_consumer", 2)):
        kv = {
            "kv_connector": "NixlConnector",
            "kv_role": role,
            "kv_buffer_device": "cpu",
            "kv_connector_extra_config": {"kv_lease_duration": KV_LEASE_S},
        }
        # The same prompt is computed again in each test.
        engine = {**decode["engine_kwargs"], "kv_transfer_config": kv}
        engine |= {"enable_prefix_caching": False, "max_model_len": LONGEST}
        options = {**decode["deployment_config"], "num_replicas": count}
        block = {**decode, "engine_kwargs": engine, "deployment_config": options}
        app["args"][f"{half}_config"] = block
    del app["args"]["prefill_config"]["batching"]
    deploy(app)
    wait_reported("pd", 3)
