"""What was captured of a running stack and replayed, beside what its client measured."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replicas.profiles.profile_file import load_profile
from serve_app.cli import main
from serve_app.demo.client import Answer, Ask, send
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.applications import application
from tests.ray.conftest import REPO, Deploy, base_url, wait_reported
from tests.ray.processes import heed_ctrl_c

pytestmark = pytest.mark.cluster
OPTION = "--capture-seconds"

# A step takes 0.4 s and more: HTTP and the cores beside it are to be small against it.
SCALE = 15
RATE_PER_S, PROMPT, OUTPUT = 4.0, 257, 62  # in the profile's time
PROFILE = "paper-fig3"


@pytest.fixture
def seconds(pytestconfig: pytest.Config) -> float:
    """How much traffic was asked for."""
    asked_s = float(pytestconfig.getoption(OPTION))
    if not asked_s:
        pytest.skip(f"needs {OPTION}: it measures, which takes minutes and idle cores")
    return asked_s


@pytest.fixture
def captured_application(seconds: float, deploy: Deploy, model_path: Path) -> None:
    """One replica on an emulated accelerator, with vLLM's own limits."""
    profile = load_profile(PROFILE)
    app = application(
        "captured",
        model_path,
        deployment={"num_replicas": 1},
        batching={"policy": "static"},
        emulate={"profile": PROFILE, "time_scale": SCALE},
    )
    app["args"]["llm_configs"][0]["engine_kwargs"] = {
        "max_num_seqs": profile.max_num_seqs,
        "max_num_batched_tokens": profile.max_num_batched_tokens,
        "max_model_len": 2048,
        "block_size": 32,
    }
    deploy(app)
    wait_reported("captured", 1)


def asks(seconds: float) -> list[Ask]:
    """Poisson arrivals over so many seconds, with exponential lengths."""
    rng = np.random.default_rng(5)
    n = max(int(seconds * RATE_PER_S / SCALE), 8)
    at_s = np.cumsum(rng.exponential(SCALE / RATE_PER_S, n))
    prompt = np.clip(rng.exponential(PROMPT, n), 4, 1500).astype(int)
    output = np.clip(rng.exponential(OUTPUT, n), 2, 400).astype(int)
    return [
        Ask(rng.integers(3, 200, p).tolist(), int(o), float(at))
        for at, p, o in zip(at_s - at_s[0], prompt, output, strict=True)
    ]


def written(path: Path) -> bool:
    """Whether a request was recorded."""
    return path.exists() and path.stat().st_size > 0


async def captured(path: Path, cluster: LocalCluster, asked: list[Ask]) -> list[Answer]:
    """Send these while ``brimful capture`` writes what it sees of them."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "serve_app.cli", "capture", "--out", str(path)),
        *("--address", cluster.gcs_address),
        cwd=REPO,
        stderr=subprocess.PIPE,
        preexec_fn=heed_ctrl_c,
    )
    try:
        model = "tiny-captured"
        for _ in range(300):  # until it records
            await send(base_url("captured"), model, [Ask([5, 6, 7], 2)])
            await asyncio.sleep(1.0)
            if written(path):
                break
        answers = await send(base_url("captured"), model, asked)
        await asyncio.sleep(5.0)
    finally:
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return answers


def measured(answers: list[Answer], asked: list[Ask]) -> dict[str, float]:
    """The client's figures in the profile's time."""
    sent_s = np.array(
        [ask.at_s + answer.late_s for ask, answer in zip(asked, answers, strict=True)]
    )
    ends_s = sent_s + [answer.total_s for answer in answers]
    gaps_s = np.concatenate([answer.itl_s for answer in answers])
    tokens = sum(answer.tokens for answer in answers)
    return {
        "tokens/s": tokens / (ends_s.max() - sent_s.min()) * SCALE,
        "mean ITL ms": 1000 * gaps_s.mean() / SCALE,
        "TTFT p50 ms": 1000 * float(np.median([a.ttft_s for a in answers if a.ttft_s])) / SCALE,
    }


def replayed(path: Path, n: int, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """What ``brimful replay`` says of the last ``n`` requests, at the profile's pace."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = sorted(lines, key=lambda line: line["arrival_s"])[-n:]
    at_pace = path.with_suffix(".paced.jsonl")
    at_pace.write_text(
        "".join(json.dumps(one | {"arrival_s": one["arrival_s"] / SCALE}) + "\n" for one in lines)
    )
    told = ["--profile", PROFILE, "--policy", "static", "--json"]
    capsys.readouterr()
    assert main(["replay", "--workload", str(at_pace), *told]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {
        "tokens/s": summary["output_tokens_per_s"],
        "mean ITL ms": summary["itl_ms"]["mean"],
        "TTFT p50 ms": summary["ttft_ms"]["p50"],
    }


async def test_what_was_captured_replays_as_it_was_measured(
    captured_application: None,
    seconds: float,
    cluster: LocalCluster,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    asked, path = asks(seconds), tmp_path / "captured.jsonl"
    answers = await captured(path, cluster, asked)
    assert [answer.error or answer.status for answer in answers if not answer.whole] == []
    real, virtual = measured(answers, asked), replayed(path, len(asked), capsys)
    terminal: Any = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    for name, value in real.items():
        told = f"{value:.4g} measured, {virtual[name]:.4g} replayed, {virtual[name] / value:.3f}"
        record_testsuite_property(f"captured: {name}", told)
        if terminal is not None:
            terminal.write_line(f"\n{name}: {told}")
    # Cores that others use show in the first token. The figures: docs/replay.md.
    assert virtual["mean ITL ms"] == pytest.approx(real["mean ITL ms"], rel=0.05)
    assert virtual["tokens/s"] == pytest.approx(real["tokens/s"], rel=0.05)
    assert virtual["TTFT p50 ms"] == pytest.approx(real["TTFT p50 ms"], rel=0.2)
