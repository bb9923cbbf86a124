"""The door behind HAProxy, changed while replicas serve; the app is that of ``test_overload``."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import requests
from openai import APIStatusError, AsyncOpenAI

from tests.collector import Collector
from tests.ray.conftest import Deploy, base_url
from tests.ray.control import until
from tests.ray.test_overload import overloaded

pytestmark = pytest.mark.cluster

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
PROMPT = "heliotrope zanzibar"
ROOT = base_url("overload").removesuffix("/v1")


@pytest.fixture
def keys(deploy: Deploy, model_path: Path, tmp_path: Path, collector: Collector) -> Iterator[Path]:
    """A file with the keys that the running replica goes by."""
    file = tmp_path / "keys"
    file.write_text(f"alice {ALICE}\nbob {BOB} classes=silver\n")
    block = {"keys": {"file": str(file)}, "limits": {"max_n": 2}}
    deploy(overloaded(model_path, security=block))
    yield file
    deploy(overloaded(model_path))


async def ask(key: str, **more: Any) -> Any:
    """The answer; or the status of the refusal."""
    async with AsyncOpenAI(base_url=base_url("overload"), api_key=key, max_retries=0) as client:
        try:
            return await client.completions.create(
                model="tiny-overload", prompt=PROMPT, max_tokens=1, **more
            )
        except APIStatusError as error:
            return error.status_code, error.body["type"]


def status(path: str, key: str | None = None) -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return requests.get(f"{ROOT}{path}", headers=headers, timeout=30).status_code


async def test_keys_paths_and_limits_come_live_and_go_with_their_file(keys: Path) -> None:
    await until("a door that asks for keys", lambda: status("/v1/models") == 401)
    assert [status(path) for path in ("/health", "/docs", "/metrics")] == [200, 404, 404]
    assert status("/v1/models", ALICE) == 200
    assert await ask("sk-nobody-0123456789") == (401, "authentication_error")
    assert (await ask(ALICE, extra_body={"service_tier": "gold"})).service_tier == "gold"
    assert (await ask(BOB)).usage.completion_tokens == 1
    gold = {"service_tier": "gold"}
    assert await ask(BOB, extra_body=gold) == (403, "permission_error")
    assert await ask(ALICE, n=3) == (400, "invalid_request_error")

    await asyncio.to_thread(keys.write_text, f"alice {BOB}-new\n")
    await until("keys that were read again", lambda: status("/v1/models", ALICE) == 401)
    assert status("/v1/models", f"{BOB}-new") == 200
    assert [secret for secret in (ALICE, BOB, PROMPT) if in_a_log(secret)] == []
    assert in_a_log("Keys were read again: 1; new: none; gone: bob.")


def in_a_log(text: str) -> bool:
    """Whether any log of the Ray session holds it, those of replicas and engines included."""
    logs = Path(ray._private.worker._global_node.get_logs_dir_path())
    files = (path for path in logs.rglob("*") if path.is_file())
    return any(text.encode() in path.read_bytes() for path in files)
