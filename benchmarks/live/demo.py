"""``brimful demo``: the main job on this machine, on CPU, with a real model and real requests."""

import argparse
import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

import ray
import yaml
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from benchmarks.live.cluster import ClusterError, LocalCluster, local_cluster
from benchmarks.live.load import Answer, Ask, prompts, send
from benchmarks.live.tiny_model import make_tiny_model
from controller.fleet.actor import find_controller
from controller.models.histogram import LogHistogram
from controller.records import ReplicaReport
from serve_app.sparkline import sparkline

CONFIG = Path("configs/cpu.yaml")
SAMPLE_S = 0.25
DEPLOY_TIMEOUT_S = 600
WIDTH = 140


class Watch:
    """Samples the controller while the load runs: replica id -> reports, oldest first."""

    def __init__(self) -> None:
        self.reports: dict[str, list[ReplicaReport]] = {}
        self._controller = find_controller()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        snapshot = ray.get(self._controller.snapshot.remote())
        for group in snapshot["groups"].values():
            for replica_id, replica in group["replicas"].items():
                seen = self.reports.setdefault(replica_id, [])
                if not seen or seen[-1].seq != replica["report"].seq:
                    seen.append(replica["report"])


def burst(base_url: str, model: str, n: int, spread_s: float) -> tuple[list[Answer], float]:
    """``n`` streaming requests within ``spread_s`` seconds, with a progress bar; and the time."""
    asks = [
        Ask(prompt, 32 + (37 * i) % 97, at_s=spread_s * i / n)
        for i, prompt in enumerate(prompts(n, (8, 120), seed=1))
    ]
    start_s = time.perf_counter()
    with tqdm(total=n, desc="requests", unit="req") as bar:

        def one_done(answer: Answer) -> None:
            bar.update()

        answers = asyncio.run(send(base_url, model, asks, done=one_done))
    return answers, time.perf_counter() - start_s


def replica_table(reports: dict[str, list[ReplicaReport]], seconds: float) -> Table:
    """One row per replica: its cap over time, what bound it, and what it served."""
    table = Table(title="Replicas during the burst, as the controller saw them")
    for name in (
        "replica",
        "cap over time",
        "cap",
        "bound by",
        "running\nat most",
        "KV use\nat most",
    ):
        table.add_column(name, no_wrap=True)
    for name in ("ITL ms\np50 / p99", "TTFT ms\np50 / p99", "pre-\nempted", "tokens/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for replica_id, seen in sorted(reports.items()):
        first, last = seen[0], seen[-1]
        caps = [r.max_running for r in seen]
        reasons = [r.reason for r in seen if r.running]
        itl, ttft = last.itl.since(first.itl), last.ttft.since(first.ttft)
        table.add_row(
            replica_id[-5:],
            sparkline(caps, width=20),
            f"{min(caps)} to {max(caps)}, now {caps[-1]}",
            ", ".join(f"{r} {reasons.count(r)}x" for r in dict.fromkeys(reasons)),
            f"{max(r.running for r in seen)}",
            f"{max(r.kv_frac for r in seen):.0%}",
            _pair_ms(itl),
            _pair_ms(ttft),
            str(last.preemptions - first.preemptions),
            f"{(itl.n + ttft.n) / seconds:.0f}",
        )
    return table


def _pair_ms(histogram: LogHistogram) -> str:
    pair = (histogram.percentile_s(50), histogram.percentile_s(99))
    return " / ".join("-" if value is None else f"{value * 1000:.0f}" for value in pair)


def _read_config() -> tuple[dict[str, Any], str, str]:
    if not CONFIG.exists():
        raise ClusterError(f"{CONFIG}: not found; run the demo in the project's directory")
    config = yaml.safe_load(CONFIG.read_text())
    options, app = config["http_options"], config["applications"][0]
    entry = app["args"]["llm_configs"][0]
    return entry, f"http://{options['host']}:{options['port']}/v1", entry["batching"]["policy"]


def _require_free(base_url: str) -> None:
    port = int(base_url.split(":")[2].split("/")[0])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ClusterError(
                f"port {port} is in use: stop what listens there, or change http_options.port"
                f" in {CONFIG}"
            ) from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=256, help="streaming requests to send")
    parser.add_argument("--spread-s", type=float, default=8.0, help="time they arrive within")
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)  # a log has no width of its own
    entry, base_url, policy = _read_config()
    loading = entry["model_loading_config"]
    model = loading["model_id"]
    _require_free(base_url)
    console.print(f"[1/5] A tiny random-weight model in {loading['model_source']} (10 s, once) ...")
    make_tiny_model(Path(loading["model_source"]))
    console.print("[2/5] Starting Ray on this machine (usually 10 s) ...")
    with local_cluster() as cluster:
        replicas = entry["deployment_config"]["num_replicas"]
        console.print(
            f"[3/5] serve deploy {CONFIG}: {replicas} vLLM engines (usually 75 to 150 s) ..."
        )
        _deploy(cluster, console)
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        console.print(f"[4/5] Warming up, then {args.requests} requests ({policy} policy) ...")
        asyncio.run(send(base_url, model, [Ask("warm up", 8)] * 16))
        with Watch() as watch:
            answers, seconds = burst(base_url, model, args.requests, args.spread_s)
        _report(console, answers, seconds, watch)
        if args.keep:
            _keep(console, base_url, model)
        ray.shutdown()
        console.print("[5/5] Stopping Ray and both engines (usually 10 s) ...")
    console.print("Stopped.")
    whole = sum(a.whole for a in answers)
    moved = any(len({r.max_running for r in seen}) > 1 for seen in watch.reports.values())
    return 0 if whole == len(answers) and moved else 1


def _deploy(cluster: LocalCluster, console: Console) -> None:
    start_s = time.monotonic()
    cluster.deploy(CONFIG)
    with console.status("deploying") as status:
        cluster.wait_running(DEPLOY_TIMEOUT_S, lambda now: status.update(f"      {now}"))
    console.print(f"      running after {time.monotonic() - start_s:.0f} s")


def _report(console: Console, answers: list[Answer], seconds: float, watch: Watch) -> None:
    console.print(replica_table(watch.reports, seconds))
    whole = [a for a in answers if a.whole]
    gaps = sorted(gap for a in whole for gap in a.itl_s)
    first = sorted(a.ttft_s for a in whole if a.ttft_s is not None)
    tokens = sum(a.tokens for a in whole)
    console.print(
        f"Client: {len(whole)} of {len(answers)} answers whole, {tokens} tokens in {seconds:.1f} s,"
        f" {tokens / seconds:.0f} tokens/s"
    )
    if gaps and first:
        console.print(
            f"        ITL p50 {_at(gaps, 50):.1f} ms, p99 {_at(gaps, 99):.1f} ms;"
            f" TTFT p50 {_at(first, 50):.0f} ms, p99 {_at(first, 99):.0f} ms"
        )


def _at(ordered: list[float], percent: float) -> float:
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] * 1000


def _keep(console: Console, base_url: str, model: str) -> None:
    console.print(
        "\nIt stays up until Ctrl-C. Try, in another terminal:\n\n"
        f"  curl {base_url}/completions -H 'content-type: application/json' \\\n"
        f"""    -d '{{"model": "{model}", "prompt": "The river", "max_tokens": 16}}'\n\n"""
        "  from openai import OpenAI\n"
        f'  client = OpenAI(base_url="{base_url}", api_key="none")\n'
        f'  print(client.completions.create(model="{model}", prompt="The river", max_tokens=16))\n',
        markup=False,
        highlight=False,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print()
