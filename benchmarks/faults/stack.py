"""The fleet of the faults bench: two emulated replicas behind a router and HAProxy."""

import contextlib
import csv
import io
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import ray
import requests
from ray.exceptions import RayError

from benchmarks.live.emulated import emulated_application
from benchmarks.live.fleet import Deployed, cluster_at, stats_port
from controller.errors import BrimfulError
from controller.fleet.actor import find_controller
from controller.records import ReplicaReport

PORT, MODEL = 8128, "faulty"
URL = f"http://127.0.0.1:{PORT}/v1"
REPLICAS, SLOTS = 2, 32
HANG_S = 5.0  # without an answer, until an engine counts as dead
TIMEOUT_S = 420.0
REACHED_IN_A_ROW = 5
SERVER, ROUTER = ("EmulatedServer:", "BrimfulServer:"), "LLMRouter"
WAITING = "brimful_without_first_token"
PER_NODE = "faulty_slot"  # resource: one for each node, and a replica takes one


class FaultsError(BrimfulError):
    """The fleet did not come to the state that a fault needs."""


def application(
    slots: int = SLOTS, bundle: dict[str, float] | None = None, replicas: int = REPLICAS
) -> dict[str, Any]:
    """The fleet; another ``slots`` is another version of it."""
    return emulated_application(
        MODEL,
        engine={"max_num_seqs": slots, "max_num_batched_tokens": 512, "max_model_len": 1024},
        deployment={"num_replicas": replicas, "health_check_period_s": 5},
        emulate={"profile": "paper-fig3", "kv_tokens": 40_000},
        bundle=bundle,
        batching={"policy": "static"},
        classes={"standard": {"ttft_ms": 10_000, "default": True}},
        failover={"hang_s": HANG_S},
    )


def real_application(replicas: int = REPLICAS) -> dict[str, Any]:
    """Engines of a tiny model in float32, so that a greedy answer does not depend on its batch."""
    app = application(replicas=replicas)
    (entry,) = app["args"]["llm_configs"]
    del entry["emulate"]
    entry["engine_kwargs"] |= {
        "block_size": 32,
        "kv_cache_memory_bytes": 64 << 20,
        "enforce_eager": True,
        "dtype": "float32",
    }
    return app


class Fleet(Deployed):
    """The deployed fleet and its processes."""

    count = REPLICAS

    def deploy(self, application: dict[str, Any], timeout_s: float | None = None) -> None:
        (entry,) = application["args"]["llm_configs"]
        self.count = entry["deployment_config"]["num_replicas"]
        super().deploy(application, timeout_s)

    def wait_whole(self, timeout_s: float = TIMEOUT_S) -> None:
        """Return once all replicas and the router run, report, and are reached.

        Raises:
            FaultsError: within ``timeout_s`` they did not.
        """
        until_s, in_a_row = time.monotonic() + timeout_s, 0
        while time.monotonic() < until_s:
            with contextlib.suppress(requests.RequestException, KeyError):
                in_a_row = in_a_row + 1 if self._whole() and reached() else 0
            if in_a_row == REACHED_IN_A_ROW:
                return
            time.sleep(0.2)
        raise FaultsError(f"the fleet was not whole within {timeout_s:.0f} s")

    def _whole(self) -> bool:
        app = self.cluster.applications()[MODEL]
        routers = len(self.replicas(ROUTER))  # one on each node, as Ray Serve decides
        healthy = all(d["status"] == "HEALTHY" for d in app["deployments"].values())
        servers = len(self.replicas(SERVER))
        return healthy and routers > 0 and servers == self.count and len(reports()) >= self.count

    def replicas(self, deployment: str | tuple[str, ...]) -> dict[str, int]:
        """Process ids of running replicas of a deployment, or of any of several, by replica id."""
        return {
            replica["replica_id"]: replica["pid"]
            for name, one in self.cluster.applications()[MODEL]["deployments"].items()
            if name.startswith(deployment)
            for replica in one["replicas"]
            if replica["state"] == "RUNNING"
        }

    def processes(self, named: str) -> list[psutil.Process]:
        """The cluster's processes with this in their command."""
        found = []
        for process in psutil.Process(self.cluster.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if named in " ".join([process.name(), *process.cmdline()]):
                    found.append(process)
        return found

    def connections(self) -> int:
        """Client connections that are open at HAProxy."""
        page = requests.get(f"http://127.0.0.1:{stats_port(PORT)}/stats;csv", timeout=10)
        rows = csv.DictReader(io.StringIO(page.text.removeprefix("# ")))
        return sum(
            int(row["scur"])
            for row in rows
            if (row["pxname"], row["svname"]) == ("http_frontend", "FRONTEND")
        )

    def without_first_token(self) -> int:
        """Admitted requests without a token, as Ray exports it (about every 10 s)."""
        (node,) = ray.nodes()
        page = requests.get(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics", timeout=10)
        lines = [line for line in page.text.splitlines() if WAITING in line and line[0] != "#"]
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def reports() -> list[ReplicaReport]:
    """The last report of every replica."""
    with contextlib.suppress(RayError, ValueError):
        groups = ray.get(find_controller().snapshot.remote(), timeout=30)["groups"]
        return [one["report"] for group in groups.values() for one in group["replicas"].values()]
    return []


def reached() -> bool:
    """Whether the models are served."""
    with contextlib.suppress(requests.RequestException):
        return requests.get(f"{URL}/models", timeout=10).ok
    return False


@contextlib.contextmanager
def fleet(
    app: dict[str, Any] | None = None, resources: dict[str, float] | None = None
) -> Iterator[Fleet]:
    """A cluster for a ``with`` block, this process connected to it; nothing is deployed yet."""
    with cluster_at(PORT, cpus=4, resources=resources) as (cluster, directory):
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        try:
            made = Fleet(cluster, directory, PORT)
            made.deploy(app or application())
            print("deploying", file=sys.stderr)
            yield made
        finally:
            ray.shutdown()
