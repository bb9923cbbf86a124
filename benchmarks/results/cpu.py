"""The real engine on CPU, over HTTP: `adaptive` beside plain vLLM, measured by vLLM's own client.

Two servers of the same tiny model, one with our scheduler and one without, both idle but for the
one that has its turn. Light load shows what the policy costs (G7); long prompts at a rate that the
engine carries show whose time between tokens stays within the SLA.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from tqdm import tqdm

from benchmarks.report.bootstrap import geometric_mean, mean
from benchmarks.report.document import ROOT, markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench
from serve_app.demo.cluster import ENVIRONMENT
from serve_app.demo.tiny_model import make_tiny_model

ITL_MS = 50  # a decode step of this model takes 3 to 10 ms here, its longest prompt 600 ms
START_TIMEOUT_S = 180
ENGINE = (
    "--enforce-eager --max-num-seqs 64 --max-num-batched-tokens 8192 --no-enable-prefix-caching"
)
BATCHING = {"brimful": {"batching": {"policy": "adaptive", "sla": {"itl_ms": ITL_MS}}}}
OURS = (
    "--scheduler-cls",
    "replicas.scheduler.DynamicBatchScheduler",
    "--additional-config",
    json.dumps(BATCHING),
)
SERVERS = {"adaptive": OURS, "vllm": ()}
FIGURES = ("output_throughput", "mean_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "p99_itl_ms")


@dataclass(frozen=True, slots=True)
class Load:
    """What ``vllm bench serve`` sends: lengths vary by 20%, arrivals are Poisson."""

    input_len: int
    output_len: int
    rate_per_s: float
    prompts: int


LIGHT = Load(64, 64, 3.0, 60)
LONG_PROMPTS = Load(1500, 100, 0.8, 40)


@contextlib.contextmanager
def server(model: Path, arguments: Sequence[str], log: Path) -> Iterator[str]:
    """vLLM's OpenAI server on CPU for a ``with`` block; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | ENVIRONMENT
    environment |= {
        "PYTHONPATH": str(ROOT),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), *ENGINE.split(), *arguments]
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_ready(process, url, log)
            yield url
        finally:
            process.terminate()
            process.wait()


def _wait_ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    until_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM's server ended:\n{log.read_text()[-2000:]}")
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"{url}/health", timeout=5).ok:
                return
        time.sleep(1)
    raise RuntimeError(f"vLLM's server did not answer within {START_TIMEOUT_S} s; see {log}")


def vllm_bench(url: str, model: Path, load: Load, seed: int) -> dict[str, Any]:
    """The figures of one ``vllm bench serve``."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "benchmarks.live.vllm_bench", "--backend", "openai"]
        command += ["--base-url", url, "--endpoint", "/v1/completions", "--model", str(model)]
        command += ["--dataset-name", "random", "--random-range-ratio", "0.2", "--ignore-eos"]
        command += ["--random-input-len", str(load.input_len)]
        command += ["--random-output-len", str(load.output_len)]
        command += ["--request-rate", str(load.rate_per_s), "--num-prompts", str(load.prompts)]
        command += ["--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99"]
        command += ["--seed", str(seed), "--disable-tqdm", "--save-result"]
        command += ["--result-dir", directory, "--result-filename", "result.json"]
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"vllm bench serve failed:\n{done.stdout}{done.stderr}")
        found: dict[str, Any] = json.loads((Path(directory) / "result.json").read_text())
    if found["completed"] != load.prompts:
        raise RuntimeError(f"only {found['completed']} of {load.prompts} requests were answered")
    return found


Rounds = dict[str, list[dict[str, Any]]]  # by server: the figures of each round


def rounds(
    urls: dict[str, str], model: Path, load: Load, seeds: Sequence[int], what: str
) -> Rounds:
    """Both servers in turn, the same requests in a round."""
    found: Rounds = {name: [] for name in urls}
    for index, seed in enumerate(tqdm(seeds, desc=what, file=sys.stderr)):
        order = list(urls) if index % 2 else list(urls)[::-1]
        for name in order:
            found[name].append(vllm_bench(urls[name], model, load, seed))
    return found


def run(bench: Bench) -> Section:
    """Both loads; nothing else should run on this machine."""
    model = make_tiny_model(ROOT / ".cache" / "tiny-llama")
    light, long_prompts = LIGHT, LONG_PROMPTS
    seeds = bench.seeds  # a round of both servers each; which begins alternates
    more = tuple(seed + len(seeds) for seed in seeds)  # what a light load costs is a matter of 1%
    if bench.small:
        light, long_prompts = Load(32, 8, 8.0, 8), Load(200, 8, 8.0, 8)
        seeds, more = seeds[:1], ()
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {
            name: stack.enter_context(server(model, arguments, directory / f"{name}.log"))
            for name, arguments in SERVERS.items()
        }
        for url in urls.values():  # the first run after a start is cold
            vllm_bench(url, model, light, 0)
        on_light = rounds(urls, model, light, seeds + more, "CPU, light load")
        on_long = rounds(urls, model, long_prompts, seeds, "CPU, long prompts")
    return _section(light, long_prompts, on_light, on_long)


def _section(light: Load, long_prompts: Load, on_light: Rounds, on_long: Rounds) -> Section:
    def values(found: Rounds, name: str, figure: str) -> list[float]:
        return [one[figure] for one in found[name]]

    def ratios(figure: str, above: str, below: str) -> list[float]:
        pairs = zip(values(on_light, above, figure), values(on_light, below, figure), strict=True)
        return [a / b for a, b in pairs]

    throughput = geometric_mean([ratios("output_throughput", "adaptive", "vllm")])
    ttft = geometric_mean([ratios("mean_ttft_ms", "vllm", "adaptive")])
    within, broken = (mean(values(on_long, name, "p99_itl_ms")) for name in ("adaptive", "vllm"))
    rows = (
        Row("cpu_throughput", "tokens/s over vLLM, light load", "ratio", throughput, 0.99),
        Row("cpu_ttft", "vLLM's mean TTFT over its own, light load", "ratio", ttft, 0.99),
        Row("cpu_p99_itl", "p99 ITL, long prompts", "ms", within, at_most=ITL_MS),
        Row("cpu_p99_itl_vllm", "p99 ITL of vLLM, long prompts", "ms", broken, ITL_MS),
    )
    lines = [
        (f"{what}, {name}", *(shown(mean(values(found, name, f)).value) for f in FIGURES))
        for what, found in (("light", on_light), ("long prompts", on_long))
        for name in SERVERS
    ]
    described = (
        f"{load.prompts} requests at {load.rate_per_s:g}/s, {load.input_len} tokens in and"
        f" {load.output_len} out"
        for load in (light, long_prompts)
    )
    return Section(
        "CPU",
        "the real engine on CPU, over HTTP",
        f"Two vLLM servers of the tiny model (`{ENGINE}`), one with `adaptive` and an SLA of"
        f" {ITL_MS} ms, in turn; `vllm bench serve`, lengths random within 20%. Light:"
        f" {len(on_light['vllm'])} rounds of {next(described)}. Long prompts:"
        f" {len(on_long['vllm'])} of {next(described)}. Client, servers and engines share this"
        " machine's cores.",
        rows,
        (markdown_table(("load, server", *(f.replace("_", " ") for f in FIGURES)), lines),),
        max_tokens=None,
    )
