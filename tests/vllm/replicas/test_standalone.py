"""The commands of docs/standalone.md run as they are written: vLLM with our scheduler, no Ray."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[3]


def documented(start: str) -> str:
    """The one shell command in docs/standalone.md in which ``start`` occurs."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs/standalone.md").read_text(), re.DOTALL)
    (found,) = [block for block in blocks if start in block]
    return found


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """Environment and arguments of a command line, run with this interpreter."""
    words = shlex.split(command.replace("\\\n", " "))
    count = words.index("python")
    variables = dict(word.split("=", 1) for word in words[:count])
    quiet = {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "INFO"}
    return os.environ | quiet | variables, [sys.executable, *words[count + 1 :]]


@pytest.mark.timeout(300)
def test_the_documented_server_answers_with_our_scheduler(tiny_llama):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment, command = split(documented("api_server").replace("8000", port))
    server = subprocess.Popen(
        [*command, "--max-num-batched-tokens", "64"],  # long prompts are computed in parts
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        log = []
        for line in server.stdout:
            log.append(line)
            if "Application startup complete" in line:
                break
        assert server.poll() is None, "".join(log)
        client = requests.Session()
        # It says so a moment before it listens.
        client.mount("http://", HTTPAdapter(max_retries=Retry(connect=8, backoff_factor=0.2)))
        asked = {"model": ".cache/tiny-llama", "prompt": "How many", "max_tokens": 7}
        url = f"http://127.0.0.1:{port}/v1/completions"
        answer = client.post(url, json=asked, timeout=60)
        # Ends a worker on a CPU that is not mended.
        seeded = asked | {"prompt": "How many " * 100, "seed": 1, "temperature": 1.0}
        in_parts = client.post(url, json=seeded, timeout=60)
    finally:
        server.terminate()
        server.communicate()
    assert (answer.status_code, in_parts.status_code) == (200, 200)
    assert in_parts.json()["usage"]["prompt_tokens"] > 64
    assert answer.json()["usage"]["completion_tokens"] <= 7
    assert any("DynamicBatchScheduler" in line for line in log)


@pytest.mark.timeout(300)
def test_the_documented_generation_ends_with_what_the_page_says(tiny_llama):
    environment, command = split(documented("offline.py"))
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "64 requests, 4096 tokens, " in done.stdout
