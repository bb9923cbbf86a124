"""``brimful serve`` as a user has it: from one command to a token, and nothing left of it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from serve_app.environment import DIRECT_STREAMING, HA_PROXY, variables
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.conftest import PORT, found_clusters, model_path
from tests.ray.processes import Started, heed_ctrl_c, naming, none_left

__all__ = ["found_clusters", "model_path"]  # fixtures

pytestmark = pytest.mark.cluster

START_S, STOP_S = 420, 180
BASE = f"http://127.0.0.1:{PORT}"
CONFIG = Path(__file__).parents[2] / "configs" / "emulated.yaml"


class Serving:
    """A command under way, and what it has said."""

    def __init__(self, log: Path, *argv: str, **environment: str) -> None:
        # A simulator that other tests import has vLLM say errors alone.
        unset = {*variables(), "VLLM_LOGGING_LEVEL"}
        own = {k: v for k, v in os.environ.items() if k not in unset}
        self.started = Started()
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serve_app.cli", "serve", *argv],
            env={**own, **self.started.environment, **environment},
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
            preexec_fn=heed_ctrl_c,
        )

    def wait(self, text: str, timeout_s: float = START_S) -> str:
        """What it has said, once this is part of it."""
        until_s = time.monotonic() + timeout_s
        while time.monotonic() < until_s and self.process.poll() is None:
            if re.search(text, said := self.log.read_text()):
                return said
            time.sleep(0.5)
        raise AssertionError(f"never {text!r}: {self.log.read_text()}")

    def end(self, by: signal.Signals) -> int:
        """Its exit status after this signal."""
        self.process.send_signal(by)
        return self.process.wait(STOP_S)


@contextlib.contextmanager
def serving(log: Path, *argv: str, **environment: str) -> Iterator[Serving]:
    """The command for a ``with`` block; whatever happens in it, nothing that it started is left."""
    made = Serving(log, *argv, **environment)
    try:
        yield made
    finally:
        for _ in range(2):  # at once
            if made.process.poll() is None:
                made.process.send_signal(signal.SIGTERM)
                time.sleep(1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            made.process.wait(STOP_S)
        made.started.end()


def stream(model: str, tokens: int, events: list[bytes]) -> None:
    """Ask for so many tokens, and keep what comes."""
    body = {"model": model, "prompt": "a river", "max_tokens": tokens, "ignore_eos": True}
    with requests.post(
        f"{BASE}/v1/completions", json={**body, "stream": True}, stream=True, timeout=STOP_S
    ) as answer:
        events.extend(line for line in answer.iter_lines() if line)


def test_one_command_to_the_first_token_and_ctrl_c_leaves_nothing(
    tmp_path: Path, model_path: Path
) -> None:
    kept = tmp_path / "kept.yaml"
    flags = ("--itl-ms", "500", "--port", str(PORT), "--write", str(kept), "--address", "local")
    vllms = ("--max-model-len", "2k", "--max-num-seqs", "16")
    # The user's proxy knows nothing of this machine.
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    with serving(tmp_path / "log", str(model_path), *flags, *vllms, **proxies) as run:
        said = run.wait("twice: at once")
        assert re.search(r"weights: loading\n", said)
        assert re.search(r"warm-up: engine ready", said)
        assert re.search(r"first token of tiny-llama: \d+ ms", said)
        assert f"console: {BASE}/console" in said
        curl = re.search(r"curl (\S+) .* -d '(.*)'", said)
        assert curl is not None
        asked = requests.post(curl[1], json=json.loads(curl[2]), timeout=STOP_S)
        assert asked.status_code == 200
        assert requests.get(f"{BASE}/console", timeout=STOP_S).status_code == 200
        engine = yaml.safe_load(kept.read_text())["applications"][0]["args"]["llm_configs"][0]
        assert engine["engine_kwargs"]["max_model_len"] == 2000
        events: list[bytes] = []
        client = threading.Thread(target=stream, args=("tiny-llama", 1500, events))
        client.start()
        time.sleep(2)
        assert run.end(signal.SIGINT) == 0
        client.join(STOP_S)
        assert events[-1] == b"data: [DONE]"
        assert [" ".join(one.cmdline()) for one in run.started.left()] == []
        assert "stopped" in run.log.read_text()


@pytest.fixture
def bare(tmp_path: Path, found_clusters: str) -> Iterator[LocalCluster]:
    """A cluster that somebody started without our variables."""
    with none_left() as started, pytest.MonkeyPatch.context() as patch:
        for name in variables():
            patch.delenv(name, raising=False)
        logs = tmp_path / "ray"
        logs.mkdir()
        ours = {**started.environment, "VLLM_TARGET_DEVICE": "cpu"}
        made = LocalCluster(ours, tmp_path, logs)
        try:
            with naming(found_clusters):
                made.wait_started()
            yield made
        finally:
            made.stop()


def test_a_cluster_that_is_joined_is_told_what_it_lacks_and_left_alone(
    bare: LocalCluster, tmp_path: Path, model_path: Path
) -> None:
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    config["http_options"]["port"] = PORT
    console = config["applications"].pop()
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({**config, "applications": [console]}))
    bare.deploy(other)
    bare.wait_running(START_S, print)
    flags = ("--emulate", "paper-fig3", "--port", str(PORT), "--address", bare.gcs_address)
    with serving(tmp_path / "log", str(model_path), *flags, "--max-model-len", "2048") as run:
        said = run.wait("twice: at once")
        assert f"note: {HA_PROXY}=1 is missing: " in said
        assert f"note: {DIRECT_STREAMING}=1 is missing: " in said
        assert "first token of tiny-llama" in said
        assert set(bare.applications()) == {"console", "llm"}
        second = serving(tmp_path / "second", str(model_path), *flags, "--max-model-len", "2048")
        with second as refused:
            assert refused.process.wait(START_S) == 2
            assert "application 'llm' runs in this cluster already" in refused.log.read_text()
        assert run.end(signal.SIGTERM) == 0
    assert set(bare.applications()) == {"console"}
    assert not bare.ended
    command = [sys.executable, "-m", "serve_app.cli", "stop", "--address", bare.gcs_address]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=STOP_S)
    assert re.match(r"removed: console; .*\nended: batch controller \S+\n", done.stdout)
    assert bare.applications() == {}
