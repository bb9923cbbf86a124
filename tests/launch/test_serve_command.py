"""``brimful serve`` as a user has it: from one command to a token, and nothing left of it."""

import json
import re
import signal
import threading
import time
from pathlib import Path

import pytest
import requests
import yaml

from tests.launch.serving import BASE, STOP_S, serving
from tests.ray.conftest import PORT, model_path

__all__ = ["model_path"]  # a fixture

pytestmark = pytest.mark.cluster


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
        while not events:
            time.sleep(0.05)
        assert run.end(signal.SIGINT) == 0
        client.join(STOP_S)
        assert events[-1] == b"data: [DONE]"
        assert [" ".join(one.cmdline()) for one in run.started.left()] == []
        assert "stopped" in run.log.read_text()
