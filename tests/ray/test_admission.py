"""Classes, admission and the door behind HAProxy, asked by OpenAI's own client."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import ray
import requests
from openai import APIStatusError, AsyncOpenAI, RateLimitError

from controller.records import ReplicaReport
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.conftest import Deploy, base_url
from tests.ray.control import metrics_text, replicas, until
from tests.ray.emulated import OVERLOAD_CLASSES, OVERLOAD_SERVER, SLOTS, WAITING, overloaded
from tests.scrapes import ADMISSION, missing, wrong

pytestmark = pytest.mark.cluster


@pytest.fixture
async def client(emulated: None) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=base_url("overload"), api_key="-", max_retries=0) as made:
        yield made
    await until("an idle replica", lambda: inside() == 0 and not report().kv_used_tokens)


def change(deploy: Deploy, model_path: Path, **user_config: Any) -> None:
    """Give the running replica another ``user_config``, or none."""
    deploy(overloaded(model_path, **user_config), beside=True)


def report() -> ReplicaReport:
    (replica,) = replicas("overload").values()
    return replica["report"]


def inside() -> int:
    return report().running + report().waiting


async def complete(client: AsyncOpenAI, tokens: int = 1, **other: Any) -> Any:
    return await client.completions.create(
        model="tiny-overload", prompt="a river", max_tokens=tokens, **other
    )


async def refused(call: Any) -> APIStatusError:
    with pytest.raises(APIStatusError) as caught:
        await call
    return caught.value


async def busy(client: AsyncOpenAI, count: int, name: str = "gold") -> list[asyncio.Task[Any]]:
    """So many requests that take for ever, of a class that is not shed, and are in the engine."""
    for_ever = {"extra_body": {"ignore_eos": True, "service_tier": name}}
    tasks = [asyncio.create_task(complete(client, 900, **for_ever)) for _ in range(count)]
    await until(f"{count} requests inside", lambda: inside() == count)
    return tasks


async def leave(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_full_replica_refuses_and_says_when_to_come_again(client):
    tasks = await busy(client, SLOTS + WAITING)
    for stream in (False, True):
        error = await refused(complete(client, stream=stream))
        assert isinstance(error, RateLimitError)
        assert error.response.headers["x-brimful-reason"] == "queue_full"
        assert float(error.response.headers["retry-after-ms"]) >= 500
        assert error.type == "rate_limit_error"
    finished = report().finished
    await leave(tasks)
    await until("an idle replica", lambda: inside() == 0)
    assert report().finished == finished  # whose clients left were aborted in the engine


async def test_other_classes_and_limits_come_without_a_restart(cluster, deploy, model_path, client):
    before = engines(cluster)
    classes = {"platinum": {"priority": -5}, "silver": OVERLOAD_CLASSES["silver"]}
    change(deploy, model_path, classes=classes, admission={"max_waiting": 1, "shed_at": 1.0})
    whole = await complete(client, extra_body={"service_tier": "platinum"})
    assert whole.model_extra["service_tier"] == "platinum"
    error = await refused(complete(client, extra_body={"service_tier": "gold"}))
    assert "known: platinum, silver" in error.body["message"]
    tasks = await busy(client, SLOTS + 1, "platinum")
    error = await refused(complete(client))
    assert error.response.headers["x-brimful-reason"] == "queue_full"
    await leave(tasks)
    await until("an idle replica", lambda: inside() == 0)
    # What is wrong with one block changes none.
    wrong = {"platinum": {"priority": -5}}, {"shed_at": 7}
    change(deploy, model_path, classes=wrong[0], admission=wrong[1])
    assert (await complete(client, extra_body={"service_tier": "silver"})).usage is not None
    change(deploy, model_path)
    assert (await complete(client, extra_body={"service_tier": "gold"})).usage is not None
    assert engines(cluster) == before


def engines(cluster: LocalCluster) -> set[int]:
    """The processes of the running replicas."""
    server = cluster.applications()["overload"]["deployments"][OVERLOAD_SERVER]
    return {one["pid"] for one in server["replicas"] if one["state"] == "RUNNING"}


async def test_what_admission_did_is_exported(emulated):
    await until(f"metrics {ADMISSION}", lambda: not missing(metrics_text(), ADMISSION))
    assert wrong(metrics_text()) == []


# --- the door, changed while replicas serve

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
PROMPT = "heliotrope zanzibar"
ROOT = base_url("overload").removesuffix("/v1")


@pytest.fixture(scope="module")
def keys(deploy: Deploy, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the keys that the running replica goes by from here on."""
    file = tmp_path_factory.mktemp("door") / "keys"
    file.write_text(f"alice {ALICE}\nbob {BOB} classes=silver\n")
    change(
        deploy, model_path, security={"keys": {"file": str(file)}, "limits": {"max_sequences": 2}}
    )
    return file


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


async def test_keys_paths_and_limits_come_live_and_go_with_their_file(keys):
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
