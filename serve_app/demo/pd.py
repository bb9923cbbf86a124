"""``make demo-pd``: one engine prefills, another decodes, and a third does both, for comparison."""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import ray
import requests
import yaml
from rich.console import Console
from rich.table import Table

from configs import shipped
from controller.errors import ConfigError
from controller.metrics import PREFILLS, REMOTE_PREFILL
from serve_app.demo.client import Answer, Ask, send
from serve_app.demo.model import TINY
from serve_app.launch.local_cluster import LocalCluster, local_cluster
from serve_app.launch.running import ClusterError, wait_reached

CONFIG = shipped("pd-cpu.yaml")
DEPLOY_TIMEOUT_S = 600
APART, ALONE = "apart", "alone"  # applications, and their routes
TOKENS = 16  # of each answer
PROMPT_TOKENS = (300, 1500)
WARM_UP = 4
# As Ray exports them: KV that a connector brought, and NIXL's own count of how and how long.
LOADED = "ray_vllm_external_prefix_cache_hits_total"
TRANSFER_S, TRANSFERS = (
    "ray_vllm_nixl_xfer_time_seconds_sum",
    "ray_vllm_nixl_xfer_time_seconds_count",
)
BYTES = "ray_vllm_nixl_bytes_transferred_sum"
SETTLE_S = 45.0  # Ray exports every 10 s


@dataclass(frozen=True, slots=True)
class Seen:
    """What the node's metrics have counted."""

    remote: float
    waited_s: float
    loaded_tokens: float
    transfers: float
    transfer_s: float
    transfer_bytes: float

    def since(self, before: "Seen") -> "Seen":
        """What came on top of ``before``."""
        names = self.__slots__
        return Seen(*(getattr(self, name) - getattr(before, name) for name in names))


def seen() -> Seen:
    """The counters of this node now; 0 for one that is not there yet."""
    port = ray.nodes()[0]["MetricsExportPort"]
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]

    def total(name: str, label: str = "") -> float:
        return sum(
            float(value)
            for sample, _, value in lines
            if sample.partition("{")[0] == name and label in sample
        )

    return Seen(
        remote=total(PREFILLS.exported, 'where="remote"'),
        waited_s=total(REMOTE_PREFILL.exported),
        loaded_tokens=total(LOADED),
        transfers=total(TRANSFERS),
        transfer_s=total(TRANSFER_S),
        transfer_bytes=total(BYTES),
    )


def applications(model: Path) -> dict[str, Any]:
    """The shipped configuration at one route, and its decode engine alone at another."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    (apart,) = config["applications"]
    for half in ("prefill_config", "decode_config"):
        apart["args"][half]["model_loading_config"]["model_source"] = str(model.absolute())
    alone = {**apart["args"]["decode_config"]}
    engine = alone["engine_kwargs"]
    alone["engine_kwargs"] = {k: v for k, v in engine.items() if k != "kv_transfer_config"}
    apart |= {"name": APART, "route_prefix": f"/{APART}"}
    other = {**apart, "name": ALONE, "route_prefix": f"/{ALONE}", "args": {"llm_configs": [alone]}}
    config["applications"].append(other)
    return config


class Deployed:
    """Both applications, and requests to them."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        options = config["http_options"]
        self._root = f"http://{options['host']}:{options['port']}"
        entry = config["applications"][0]["args"]["decode_config"]
        self._model: str = entry["model_loading_config"]["model_id"]

    def start(self, cluster: LocalCluster, directory: Path, console: Console) -> None:
        """Deploy, and wait until both answer."""
        path = directory / "serve.yaml"
        path.write_text(yaml.safe_dump(self._config))
        begin_s = time.monotonic()
        cluster.deploy(path)
        with console.status("deploying") as status:
            cluster.wait_running(DEPLOY_TIMEOUT_S, lambda now: status.update(f"      {now}"))
        for name in (APART, ALONE):
            wait_reached(f"{self._root}/{name}/v1")
        console.print(f"      running after {time.monotonic() - begin_s:.0f} s")
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")

    def ask(self, name: str, prompt: list[int]) -> Answer:
        """One request, alone.

        Raises:
            ClusterError: it was not served whole.
        """
        url = f"{self._root}/{name}/v1"
        (answer,) = asyncio.run(send(url, self._model, [Ask(prompt, TOKENS)]))
        if not answer.whole:
            raise ClusterError(f"{url} answered {answer.status}: {answer.error or answer.text}")
        return answer


def settled(before: Seen, remote: int) -> Seen:
    """What the counters say once they have so many remote prefills more, and their transfers.

    Raises:
        ClusterError: they do not within ``SETTLE_S``.
    """
    until_s = time.monotonic() + SETTLE_S
    while time.monotonic() < until_s:
        now = seen().since(before)
        if now.remote >= remote and now.transfers >= remote:
            return now
        time.sleep(1)
    raise ClusterError(
        f"of {remote} requests {now.remote:.0f} were prefilled by the other engine, and"
        f" {now.transfers:.0f} transfers were counted, after {SETTLE_S:g} s"
    )


def row(
    prompt_tokens: int, alone: Sequence[Answer], apart: Sequence[Answer], told: Seen
) -> dict[str, Any]:
    """All figures of one demo; times are means per request, ms, of requests sent one by one."""
    same = sum(a.text == b.text for a, b in zip(alone, apart, strict=True))
    ttft = {ALONE: _ms(a.ttft_s for a in alone), APART: _ms(a.ttft_s for a in apart)}
    prefill_ms = told.waited_s / told.remote * 1000
    transfer_ms = told.transfer_s / told.transfers * 1000
    return {
        "requests": len(apart),
        "identical": same,
        "prompt_tokens": prompt_tokens,
        "loaded_tokens": int(told.loaded_tokens),
        "loaded_mb": round(told.transfer_bytes / 1e6, 2),
        "ttft_alone_ms": round(ttft[ALONE], 1),
        "ttft_apart_ms": round(ttft[APART], 1),
        "overhead_ms": round(ttft[APART] - ttft[ALONE], 1),
        "remote_prefill_ms": round(prefill_ms, 1),
        "transfer_ms": round(transfer_ms, 2),
        "rest_ms": round(ttft[APART] - prefill_ms - transfer_ms, 1),
        "itl_alone_ms": round(_ms(gap for a in alone for gap in a.itl_s), 2),
        "itl_apart_ms": round(_ms(gap for a in apart for gap in a.itl_s), 2),
    }


def _ms(values: Any) -> float:
    return float(np.mean([value for value in values if value is not None])) * 1000


def table(figures: dict[str, Any]) -> Table:
    """What a person reads of it."""
    made = Table(title="Mean per request, each sent alone")
    made.add_column("")
    made.add_column("ms", justify="right")
    for text, key in (
        ("one engine: time to first token", "ttft_alone_ms"),
        ("apart: time to first token", "ttft_apart_ms"),
        ("  waited for the prefill engine (its prefill among it)", "remote_prefill_ms"),
        ("  KV read over NIXL", "transfer_ms"),
        ("  the rest: HTTP, two steps of the decode engine around the load", "rest_ms"),
        ("overhead: the difference of the first two", "overhead_ms"),
        ("one engine: time between tokens", "itl_alone_ms"),
        ("apart: time between tokens", "itl_apart_ms"),
    ):
        made.add_row(text, f"{figures[key]:g}")
    return made


def main() -> int:
    """Everything from nothing; 0 where all answers were those of one engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=24, help="to each (default: %(default)s)")
    count = parser.parse_args().requests
    if not 1 <= count <= 10_000:
        raise ConfigError([f"--requests: {count} is not allowed: 1 to 10000"])
    if find_spec("nixl") is None:
        raise ConfigError(["NIXL is not installed: make demo-pd, or the extra `pd`"])
    console = Console() if Console().is_terminal else Console(width=88)
    directory = Path(tempfile.mkdtemp(prefix="brimful-demo-pd-"))  # stays where it goes wrong
    TINY.make(TINY.folder)
    rng = random.Random(0)
    sizes = [rng.randint(*PROMPT_TOKENS) for _ in range(count + WARM_UP)]
    prompts = [[rng.randrange(3, 500) for _ in range(size)] for size in sizes]
    console.print("[1/3] Starting Ray and three vLLM engines (usually 90 s) ...")
    with contextlib.ExitStack() as exits:
        deployed = Deployed(applications(TINY.folder))
        cluster = exits.enter_context(local_cluster(logs=directory, cpus=4))
        deployed.start(cluster, directory, console)
        before = seen()
        for prompt in prompts[:WARM_UP]:  # the two engines make each other's acquaintance
            for name in (ALONE, APART):
                deployed.ask(name, prompt)
        before = _after(before, WARM_UP)
        console.print(f"[2/3] {count} prompts of {min(sizes)} to {max(sizes)} tokens, to each ...")
        answers: dict[str, list[Answer]] = {ALONE: [], APART: []}
        for prompt in prompts[WARM_UP:]:
            for name, got in answers.items():
                got.append(deployed.ask(name, prompt))
        total = sum(sizes[WARM_UP:])
        figures = row(total, answers[ALONE], answers[APART], settled(before, count))
        ray.shutdown()
        console.print("[3/3] Stopping Ray and the engines ...")
    shutil.rmtree(directory)
    console.print(table(figures))
    console.print(
        f"{figures['identical']} of {count} answers are those of one engine, to the last token;"
        f" {figures['loaded_tokens']:,} of {figures['prompt_tokens']:,} prompt tokens"
        f" ({figures['loaded_mb']:g} MB) came over NIXL."
    )
    print(json.dumps({"bench": "pd-demo", "rows": [figures]}))
    return 0 if figures["identical"] == count else 1


def _after(before: Seen, remote: int) -> Seen:
    settled(before, remote)
    return seen()


if __name__ == "__main__":
    raise SystemExit(main())
