"""An emulated fleet for the overload bench: with classes, as Ray ships it, with vLLM's limits."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.overload.shapes import CLASSES, PROFILE, REPLICAS, SLOTS, STEP_TOKENS
from benchmarks.report.document import ROOT
from serve_app.demo.cluster import LocalCluster, local_cluster
from serve_app.demo.tiny_model import make_tiny_model

PORT, MODEL = 8126, "overload"
URL = f"http://127.0.0.1:{PORT}/v1"
# HAProxy's two others, fixed by default: another cluster on this machine may have them.
ENVIRONMENT = {
    "RAY_SERVE_HAPROXY_METRICS_PORT": "9126",
    "RAY_SERVE_HAPROXY_STATS_PORT": "8426",
}
DEPLOY_TIMEOUT_S = 420
VARIANTS = {
    "brimful": "classes and admission",
    "defaults": "Ray Serve LLM as shipped: no limit on what waits",
    "vllm_limits": "vLLM's max_num_queued_reqs at three times the slots",
}


def application(variant: str, time_scale: float) -> dict[str, Any]:
    """The fleet under one of ``VARIANTS``; its clients send the same."""
    engine: dict[str, Any] = {
        "max_num_seqs": SLOTS,
        "max_num_batched_tokens": STEP_TOKENS,
        "max_model_len": 1024,
        "enable_prefix_caching": False,
    }
    deployment: dict[str, Any] = {"num_replicas": REPLICAS, "ray_actor_options": {"num_cpus": 0.1}}
    blocks: dict[str, Any] = {"batching": {"policy": "static"}}
    if variant == "brimful":
        blocks |= {"classes": CLASSES}
        deployment["max_ongoing_requests"] = 4096
    elif variant == "vllm_limits":
        engine["max_num_queued_reqs"] = 3 * SLOTS
    entry = {
        "model_loading_config": {
            "model_id": MODEL,
            "model_source": str(make_tiny_model(ROOT / ".cache" / "tiny-llama")),
        },
        "accelerator_config": {"kind": "cpu"},
        "placement_group_config": {"bundle_per_worker": {"CPU": 0.25}},
        "runtime_env": {
            "env_vars": {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
        },
        "engine_kwargs": engine,
        "deployment_config": deployment,
        "emulate": {"profile": PROFILE, "kv_tokens": 20_000, "time_scale": time_scale},
        **blocks,
    }
    return {
        "name": MODEL,
        "route_prefix": "/",
        "import_path": "serve_app:build_app",
        "args": {"llm_configs": [entry]},
    }


class Fleet:
    """A cluster on which one variant after the other runs."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self._cluster, self._directory = cluster, directory

    def deploy(self, application: dict[str, Any]) -> None:
        """This application and nothing else; returns when it answers."""
        config = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "127.0.0.1", "port": PORT},
            "applications": [application],
        }
        path = self._directory / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        self._cluster.deploy(path)
        self._cluster.wait_running(DEPLOY_TIMEOUT_S, lambda state: print(state, file=sys.stderr))

    @property
    def pid(self) -> int:
        """Of the process that all others of the cluster descend from."""
        return self._cluster.pid

    def memory_mb(self) -> dict[str, float]:
        """Resident memory of each process of the cluster, by its title and id."""
        found = {}
        for process in psutil.Process(self._cluster.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                # Ray and vLLM write what a process is into its title.
                words = [Path(w).name for w in process.cmdline()[:3] if not w.startswith("-")]
                title = " ".join(filter(None, words)) or process.name()
                found[f"{title} {process.pid}"] = process.memory_info().rss / 1e6
        return found


@contextlib.contextmanager
def fleet() -> Iterator[Fleet]:
    """A cluster for a ``with`` block."""
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(ENVIRONMENT, directory=ROOT, logs=Path(directory)) as cluster,
    ):
        yield Fleet(cluster, Path(directory))
