"""``make bench-elastic ARGS=--zero``: the demo's model without a replica, and back, timed."""

import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from benchmarks.report.bootstrap import mean
from benchmarks.report.document import ROOT, markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly
from configs import shipped
from controller.errors import BrimfulError
from serve_app.demo.client import Answer, Ask, prompts, send
from serve_app.demo.cluster import LocalCluster, local_cluster, wait_reached
from serve_app.demo.tiny_model import make_tiny_model

ROUNDS = 3
AT_ONCE, TOKENS = 8, 16  # requests that find no replica, and the tokens of each answer
# As short as they may be for minutes: 300 s, three starts and 60 s downwards are for days.
SCALING = {"peak_s": 10, "peak_starts": 0, "start_s": 15}
AUTOSCALING = {
    "min_replicas": 0,
    "initial_replicas": 1,
    "max_replicas": 1,
    "downscale_delay_s": 5,
    "downscale_to_zero_delay_s": 5,
    "look_back_period_s": 5,
    "metrics_interval_s": 1,
}
TIMEOUT_S = 300.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Round:
    """Once down to no replica, and back.

    Args:
        decided_s: from the last answer until Ray Serve wants no replica.
        gone_s: likewise until none is left in any state.
        held_s: of each request that found no replica, until its first token.
        missed: of these requests, those that were not answered whole.
        warm_s: likewise of one right after them.
    """

    decided_s: float
    gone_s: float
    held_s: tuple[float, ...]
    missed: int
    warm_s: float


def run(*, write: bool) -> None:
    """Measure and print.

    Args:
        write: docs/results/elastic-zero.md as well.

    Raises:
        BrimfulError: something did not come up, or a replica did not go.
    """
    section = page(measure())
    text = section.markdown("make bench-elastic ARGS='--zero --write'")
    print(text)
    if write:
        write_page("elastic-zero", text)
    rows = [row.to_json() for row in section.rows]
    print(json.dumps({"bench": "elastic-zero", "rows": rows}))


def configured() -> dict[str, Any]:
    """What ``make demo`` deploys, with one replica that may go."""
    config: dict[str, Any] = yaml.safe_load(shipped("cpu.yaml").read_text())
    (entry,) = config["applications"][0]["args"]["llm_configs"]
    loading, deployment = entry["model_loading_config"], entry["deployment_config"]
    loading["model_source"] = str(make_tiny_model(ROOT / ".cache" / "tiny-llama"))
    del deployment["num_replicas"]
    deployment["autoscaling_config"] = AUTOSCALING
    entry["scaling"] = SCALING
    return config


def measure() -> list[Round]:
    """Deploy, let the replica go and come ``ROUNDS`` times, and end all of it again."""
    config = configured()
    with (
        tempfile.TemporaryDirectory(prefix="brimful-zero-") as folder,
        local_cluster(directory=ROOT, logs=Path(folder)) as cluster,
    ):
        path = Path(folder) / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        cluster.deploy(path)
        cluster.wait_running(TIMEOUT_S, lambda state: print(state, file=sys.stderr))
        options = config["http_options"]
        url = f"http://{options['host']}:{options['port']}/v1"
        wait_reached(url)
        return [_round(cluster, url) for _ in tqdm(range(ROUNDS), "to zero", file=sys.stderr)]


def _round(cluster: LocalCluster, url: str) -> Round:
    asks = [Ask(text, TOKENS) for text in prompts(AT_ONCE, (8, 40), seed=1)]
    _answers(url, asks[:1])
    begin_s = time.monotonic()
    decided_s = _until(cluster, "target_num_replicas", begin_s)
    gone_s = _until(cluster, "replicas", begin_s)
    held = _answers(url, asks)
    (warm,) = _answers(url, asks[:1])
    whole = [one.ttft_s for one in held if one.whole and one.ttft_s is not None]
    if not whole or warm.ttft_s is None:
        raise BrimfulError(f"nobody was answered: {held[0].status} {held[0].text[:200]}")
    return Round(decided_s, gone_s, tuple(whole), len(held) - len(whole), warm.ttft_s)


def _answers(url: str, asks: list[Ask]) -> list[Answer]:
    return asyncio.run(_within(url, asks))


async def _within(url: str, asks: list[Ask]) -> list[Answer]:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await send(url, "tiny", asks)
    except TimeoutError:
        raise BrimfulError(f"requests were still held after {TIMEOUT_S:g} s") from None


def _until(cluster: LocalCluster, what: str, begin_s: float) -> float:
    """Seconds since ``begin_s`` when Ray Serve's status has none of this for the model."""
    while time.monotonic() < begin_s + TIMEOUT_S:
        deployments = cluster.applications()["llm"]["deployments"]
        if not any(found[what] for name, found in deployments.items() if "Server:" in name):
            return time.monotonic() - begin_s
        time.sleep(POLL_S)
    raise BrimfulError(f"{what} was not 0 within {TIMEOUT_S:g} s of the last answer")


def page(rounds: list[Round]) -> Section:
    """The figures, and each round."""
    first, last = [min(r.held_s) for r in rounds], [max(r.held_s) for r in rounds]
    missed = sum(r.missed for r in rounds)
    rows = (
        Row("zero_first_s", "first token of the first request held", "s", mean(first)),
        Row("zero_last_s", f"of the last of {AT_ONCE}", "s", mean(last)),
        Row("zero_missed", "requests held that were not answered whole", "", exactly(missed),
            at_most=0),
        Row("zero_warm_s", "first token right after them", "s", mean([r.warm_s for r in rounds])),
        Row("zero_decided_s", "last answer to no replica wanted", "s",
            mean([r.decided_s for r in rounds])),
        Row("zero_gone_s", "last answer to no replica left", "s", mean([r.gone_s for r in rounds])),
    )  # fmt: skip
    lines = []
    for k, one in enumerate(rounds):
        clock = (one.decided_s, one.gone_s, min(one.held_s), max(one.held_s))
        cells = (*(f"{s:.2f}" for s in clock), f"{one.warm_s:.3f}", str(one.missed))
        lines.append((str(k + 1), *cells))
    head = (
        "round",
        "none wanted, s",
        "none left, s",
        "first token, s",
        "last one's, s",
        "then, s",
        "missed",
    )
    text = (
        "The model of `make demo` on this machine's cores with `min_replicas: 0`. Once its only"
        f" replica is gone, {AT_ONCE} requests come at once: Ray Serve holds them, starts a"
        " replica, and hands them over. Of the time until none is wanted"
        f" {AUTOSCALING['downscale_to_zero_delay_s']} s are `downscale_to_zero_delay_s` and"
        f" {SCALING['peak_s']} `peak_s`, which are 60 and 300 where nothing is set; a"
        " replica that goes is kept reachable for 30 s by Ray Serve, for HAProxy's sake (decision"
        " 19):"
        f" `autoscaling_config` {json.dumps(AUTOSCALING)}, `scaling` {json.dumps(SCALING)}."
    )
    return Section(
        "Elastic, from zero", "a model without a replica, and back", text, rows,
        (markdown_table(head, lines),), max_tokens=None,
    )  # fmt: skip
