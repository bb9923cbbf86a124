"""One replica on a card behind HAProxy, handed one batching block after the other."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import ray
import requests

from benchmarks.gpu.budget import Budget
from benchmarks.gpu.model import make_model
from benchmarks.gpu.stack_client import Sent
from benchmarks.live.fleet import Deployed
from benchmarks.report.document import ROOT
from controller.config import parse_batching
from serve_app.demo.stack import SAMPLE_S, SWITCH_TIMEOUT_S, wait_controller
from serve_app.launch.local_cluster import LocalCluster
from serve_app.launch.running import ClusterError, wait_reached

PORT, MODEL = 8131, "stack"
URL = f"http://127.0.0.1:{PORT}/v1"
STOP_S = 30.0  # of the budget, for what comes after the runs
LOG_BYTES = 200_000
Batching = dict[str, Any]


class CardStack:
    """One replica of the model behind HAProxy; what is found goes to ``stack.json`` at once."""

    def __init__(self, cluster: LocalCluster, out: Path, *, tiny: bool, eager: bool) -> None:
        self._cluster, self._out, self._rows = cluster, out, list[dict[str, Any]]()
        self._deployed = Deployed(cluster, out, PORT)
        self._engine: dict[str, Any] = {
            "max_num_seqs": 64 if tiny else 1024,
            "max_num_batched_tokens": 2048 if tiny else 8192,
            "max_model_len": 2048 if tiny else 20_480,
            "enable_prefix_caching": False,
            "load_format": "dummy",
            "dtype": "bfloat16",
            "enforce_eager": tiny or eager,
        }
        entry: dict[str, Any] = {
            "model_loading_config": {
                "model_id": MODEL,
                "model_source": str(make_model(ROOT / ".cache", tiny=tiny).absolute()),
            },
            "engine_kwargs": self._engine,
            "deployment_config": {"num_replicas": 1, "max_ongoing_requests": 4096},
            "engine": {"executor": "in_process"},
            "batching": {"policy": "adaptive"},  # the SLA comes when the stack runs
        }
        if tiny:
            self._engine |= {"block_size": 32, "kv_cache_memory_bytes": 25_165_824}
            entry |= {
                "accelerator_config": {"kind": "cpu"},
                "placement_group_config": {"bundle_per_worker": {"CPU": 0.5}},
                "runtime_env": {"env_vars": {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}},
            }
            entry["deployment_config"]["ray_actor_options"] = {"num_cpus": 0.5}
        self._app: dict[str, Any] = {
            "name": MODEL,
            "route_prefix": "/",
            "import_path": "serve_app:build_app",
            "args": {"llm_configs": [entry]},
        }

    def most(self, running: int) -> int:
        """So many, or what the engine's buffers hold."""
        return min(running, int(self._engine["max_num_seqs"]))

    def start(self, budget: Budget) -> None:
        """Deploy it, and wait for the first token.

        Raises:
            ClusterError: it does not come up within the budget.
        """
        begin_s = time.monotonic()
        self._deployed.deploy(self._app)
        self._cluster.wait_running(max(budget.left_s - STOP_S, 1.0), lambda now: print(now))
        wait_reached(URL)
        body = {"model": MODEL, "prompt": [5] * 16, "max_tokens": 1}
        answer = requests.post(f"{URL}/completions", json=body, timeout=60)
        if not answer.ok:
            raise ClusterError(f"the first request: {answer.status_code} {answer.text}")
        self.row("stack_deploy_to_token", time.monotonic() - begin_s, "s")
        ray.init(address=self._cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        self._controller = wait_controller()

    def go_by(self, batching: Batching) -> None:
        """Hand the running engine another batching block; return once it goes by it.

        Raises:
            ClusterError: it does not within half a minute.
        """
        name = f"BrimfulServer:{MODEL}"
        self._app["deployments"] = [{"name": name, "user_config": {"batching": batching}}]
        self._deployed.deploy(self._app)
        wanted, until_s = parse_batching(batching), time.monotonic() + SWITCH_TIMEOUT_S
        while time.monotonic() < until_s:
            groups = self._snapshot()["groups"].values()
            if any(r["batching"] == wanted for g in groups for r in g["replicas"].values()):
                return
            time.sleep(SAMPLE_S)
        raise ClusterError(f"the replica did not take over {batching}")

    def _snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = ray.get(self._controller.snapshot.remote(), timeout=30)
        return found

    def row(self, id_: str, value: float, unit: str, target: float | None = None) -> None:
        """One more figure; all of them are written."""
        self._rows.append({"id": id_, "value": round(value, 4), "unit": unit, "target": target})
        print(f"{id_:50} {value:12.3f} {unit}", flush=True)
        (self._out / "stack.json").write_text(json.dumps(self._rows, indent=1))

    def rows_of(self, name: str, sent: Sent, itl_ms: float) -> None:
        """The figures of a run, what failed in it, and what the replica's processes took."""
        for figure, (value, unit) in sent.figures(itl_ms).items():
            self.row(f"stack_{name}_{figure}", value, unit, 0 if figure == "failed" else None)
        for answer in [a for a in sent.answers if not a.whole][:3]:
            print(answer.status, answer.error, answer.text[:500], flush=True)
        reports = [
            r["report"] for g in self._snapshot()["groups"].values() for r in g["replicas"].values()
        ]
        print(json.dumps([asdict(report) for report in reports], default=str)[:1500], flush=True)

    def keep_status(self) -> None:
        """The controller's snapshot, and what ``brimful status --json`` says."""
        text = json.dumps(self._snapshot(), default=repr, indent=1)
        (self._out / "snapshot.json").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "serve_app.cli", "status", "--json"],
            env=self._cluster.environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        (self._out / "status.json").write_text(done.stdout or done.stderr)


def keep_logs(out: Path) -> None:
    """Put the ends of the cluster's logs into one file: a run that failed is understood by them."""
    logs = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "session_latest" / "logs"
    names = ("serve/replica_*", "serve/*", "worker-*.err", "worker-*.out", "raylet.*", "dash*.log")
    found = dict.fromkeys(p for name in names for p in logs.glob(name) if p.is_file())
    with (out / "ray-logs.txt").open("w") as kept:
        for path in found:
            text = path.read_bytes()[-LOG_BYTES:].decode(errors="replace")
            if text and kept.tell() < 40 * LOG_BYTES:
                kept.write(f"==== {path.name}\n{text}\n")
        kept.write(f"==== memory\n{psutil.virtual_memory()}\n")
