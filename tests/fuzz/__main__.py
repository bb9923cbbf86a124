"""``make fuzz``: schemathesis asks the live API what its schema allows, and what it does not.

It fails for a status from 500 up, a request without an answer in ``ANSWER_S``, or a server that no
longer serves a plain request at the end.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from replicas.door.paths import Paths
from serve_app.demo.tiny_model import make_tiny_model
from tests.fuzz.processes import ended_by_sigterm, serving

SCHEMATHESIS = Path(".venv-fuzz") / "bin" / "schemathesis"
WORK = Path(".cache") / "fuzz"  # where schemathesis keeps what failed, for `schemathesis replay`
SECONDS = 600
ANSWER_S = 60
START_S = 300
KEY = "sk-fuzz-0123456789"


def main() -> int:
    args = _arguments()
    with ended_by_sigterm(), tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "openapi.json"
        schema.write_text(json.dumps(served_schema()))
        if args.url:
            return _fuzz(args, args.url, args.key, schema)
        keys = Path(folder) / "keys"
        keys.write_text(f"fuzz {KEY}\n")
        with _server(keys) as url:
            return _fuzz(args, url, KEY, schema)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of asking (default: 600)")
    parser.add_argument("--url", help="of an API that runs already; else one is started")
    parser.add_argument("--key", default="-", help="... and its API key")
    parser.add_argument("--schemathesis", type=Path, default=SCHEMATHESIS, help="the command")
    return parser.parse_args()


def served_schema() -> dict[str, Any]:
    """vLLM's own OpenAPI schema, of the paths that the door serves."""
    from tests.vllm.door_routes import vllms_app

    schema: dict[str, Any] = vllms_app(make_tiny_model(Path(".cache") / "tiny-llama")).openapi()
    paths = Paths()
    schema["paths"] = {p: told for p, told in schema["paths"].items() if paths.methods(p)}
    return schema


@contextmanager
def _server(keys: Path) -> Iterator[str]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "tests.fuzz.server", str(port), str(keys)]
    env = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_LOGGING_LEVEL": "ERROR"}
    url = f"http://127.0.0.1:{port}"
    with serving(command, env) as process:
        _wait_for(f"{url}/health", process)
        yield url


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(START_S):
        if process.poll() is not None:
            sys.exit(f"error: the server ended with {process.returncode}")
        try:
            if requests.get(url, timeout=5).ok:
                return
        except requests.RequestException:
            time.sleep(1)
    sys.exit(f"error: {url} did not answer within {START_S} s")


def _fuzz(args: argparse.Namespace, url: str, key: str, schema: Path) -> int:
    command = [str(args.schemathesis.absolute()), "run", str(schema), "--url", url]
    command += ["--header", f"Authorization: Bearer {key}", "--max-time", str(args.seconds)]
    command += ["--checks", "not_a_server_error", "--phases", "examples,fuzzing"]
    command += ["--request-timeout", str(ANSWER_S), "--workers", "4", "--warnings", "off"]
    command += ["--continue-on-failure", "--suppress-health-check", "all"]
    begun_s = time.monotonic()
    WORK.mkdir(parents=True, exist_ok=True)
    failed = subprocess.run(command, check=False, cwd=WORK).returncode
    model = requests.get(
        f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}, timeout=ANSWER_S
    ).json()["data"][0]["id"]
    plain = requests.post(
        f"{url}/v1/completions",
        json={"model": model, "prompt": "a river", "max_tokens": 4},
        headers={"authorization": f"Bearer {key}"},
        timeout=ANSWER_S,
    )
    took_s = time.monotonic() - begun_s
    print(f"asked for {took_s:.0f} s; a plain request afterwards: {plain.status_code}")
    return 1 if failed or plain.status_code != 200 else 0


if __name__ == "__main__":
    sys.exit(main())
