"""Classes, admission and the door behind HAProxy, asked by OpenAI's own client."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
import ray
import requests
from openai import APIError, APIStatusError, AsyncOpenAI, RateLimitError

from controller.records import ReplicaReport
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.collector import Collector
from tests.ray.conftest import TRACES_PORT, Deploy, base_url
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
    deploy(overloaded(model_path, TRACES_PORT, **user_config), beside=True)


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


async def test_the_class_that_served_is_in_the_answer(client):
    whole = await complete(client, extra_body={"service_tier": "gold"})
    assert whole.model_extra["service_tier"] == "gold"
    chat = await client.chat.completions.create(
        model="tiny-overload",
        messages=[{"role": "user", "content": "a river"}],
        max_tokens=2,
        service_tier="silver",
        stream=True,
    )
    chunks = [chunk async for chunk in chat]
    assert chunks[0].service_tier == "silver"


async def test_a_full_replica_refuses_and_says_when_to_come_again(client):
    tasks = await busy(client, SLOTS + WAITING)
    for stream in (False, True):
        error = await refused(complete(client, stream=stream))
        assert isinstance(error, RateLimitError)
        assert error.response.headers["x-brimful-reason"] == "queue_full"
        assert float(error.response.headers["retry-after-ms"]) >= 500
        assert error.type == "rate_limit_error"
    again = asyncio.create_task(complete(client.with_options(max_retries=5)))
    await asyncio.sleep(0.1)  # it has been refused once, or will find room: both are well
    await leave(tasks)
    assert (await again).usage.completion_tokens == 1


async def test_who_waited_too_long_gets_503(client):
    tasks = await busy(client, SLOTS)
    error = await refused(complete(client, stream=True, extra_body={"service_tier": "hasty"}))
    assert error.status_code == 503
    assert error.response.headers["x-brimful-reason"] == "queue_timeout"
    await leave(tasks)


@pytest.mark.parametrize(
    ("headers", "body", "status", "param"),
    [
        ({}, {"service_tier": "platinum"}, 400, "service_tier"),
        ({"x-request-timeout-seconds": "-1"}, {}, 400, "x-request-timeout-seconds"),
        ({"x-request-timeout-seconds": "1e30"}, {}, 400, "x-request-timeout-seconds"),
        ({"x-vllm-priority": "9" * 30}, {}, 400, "x-vllm-priority"),
        ({}, {"priority": 10**12}, 400, "priority"),
        ({}, {"prompt": "a" * 2_000_000}, 413, "body"),
    ],
)
async def test_bad_input_is_a_4xx_that_names_the_field(client, headers, body, status, param):
    error = await refused(complete(client, extra_headers=headers, extra_body=body))
    assert (error.status_code, error.body["param"]) == (status, param)


async def test_headers_of_64_kb_are_the_clients_fault(client):
    # They pass HAProxy, whose own answer to what is beyond its buffer would name nothing.
    error = await refused(complete(client, extra_headers={"x-big": "y" * 65_536}))
    assert (error.status_code, error.body["param"]) == (431, "x-big")


async def test_clients_that_leave_are_aborted_in_the_engine(client):
    finished = report().finished
    await leave(await busy(client, SLOTS + WAITING))
    await until("an idle replica", lambda: inside() == 0)
    assert report().finished == finished  # none was computed to its end


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


async def test_one_trace_leads_from_the_clients_header_to_vllms_span(client, collector):
    trace, clients = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = {"traceparent": f"00-{trace}-{clients}-01"}
    await complete(client, 3, extra_headers=headers, extra_body={"service_tier": "gold"})
    await until("both spans", lambda: len(collector.of(trace)) == 2)
    spans = collector.of(trace)
    ours, vllms = spans["brimful.request"], spans["llm_request"]
    assert (ours.parent, vllms.parent) == (clients, ours.id)
    said = ours.attributes
    assert (said["brimful.class"], said["brimful.admitted"]) == ("gold", True)
    assert said["brimful.cap"] == SLOTS
    assert said["brimful.replica"] in replicas("overload")
    assert said["brimful.queue_s"] == vllms.attributes["gen_ai.latency.time_in_queue"]
    assert "a river" not in str(list(spans.values()))


# --- clocks: an answer takes 30 ms a token and more

LONG: Any = {"extra_body": {"ignore_eos": True, "service_tier": "gold"}}


async def test_a_deadline_to_the_first_token_cuts_no_stream(client):
    async def tokens(**headers: str) -> int:
        usage = {"include_usage": True}  # a busy server puts several tokens into one chunk
        stream = await complete(
            client, 140, stream=True, stream_options=usage, extra_headers=headers, **LONG
        )
        *_, last = [chunk async for chunk in stream]
        return last.usage.completion_tokens

    deadline = {"x-request-timeout-seconds": "3"}
    for _ in range(2):  # as many at once as begin at once
        whole = await asyncio.gather(*(tokens(**deadline) for _ in range(SLOTS)))
        assert whole == [140] * SLOTS


async def test_an_answer_that_a_clock_ends_is_an_error_of_both_clients(deploy, model_path, client):
    change(deploy, model_path, security={"extra_paths": ["POST /v1/messages"]})
    # As Envoy tells its route's timeout; ``http_options.request_timeout_s`` is the whole cluster's.
    clock = {"extra_headers": {"x-envoy-expected-rq-timeout-ms": "3000"}}
    chat: Any = {"model": "tiny-overload", "messages": [{"role": "user", "content": "a river"}]}
    chat |= {"stream": True}

    gold = clock["extra_headers"] | {"x-llm-d-inference-objective": "gold"}

    async def told(call: Any) -> str:
        with pytest.raises((APIError, anthropic.APIStatusError)) as raised:
            _ = [event async for event in await call]
        return str(raised.value)

    async with anthropic.AsyncAnthropic(base_url=ROOT, api_key="-", max_retries=0) as claude:
        for _ in range(2):
            said = await asyncio.gather(
                *(
                    told(complete(client, 140, stream=stream, **LONG, **clock))
                    for stream in (True, False)
                ),
                told(client.chat.completions.create(max_tokens=140, **chat, **LONG, **clock)),
                told(claude.messages.create(max_tokens=140, **chat, extra_headers=gold)),
            )
            assert [one for one in said if "3 s that it has by the gateway" not in one] == []


# --- the door, changed while replicas serve

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
PROMPT = "heliotrope zanzibar"
ROOT = base_url("overload").removesuffix("/v1")


@pytest.fixture(scope="module")
def keys(
    deploy: Deploy,
    model_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    collector: Collector,
) -> Path:
    """A file with the keys that the running replica goes by from here on."""
    file = tmp_path_factory.mktemp("door") / "keys"
    file.write_text(f"alice {ALICE}\nbob {BOB} classes=silver\n")
    open_too = ["POST /v1/messages", "POST /v1/messages/count_tokens"]
    block = {"keys": {"file": str(file)}, "limits": {"max_n": 2}, "extra_paths": open_too}
    change(deploy, model_path, security=block)
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


async def test_anthropics_client_is_served_behind_haproxy(keys):
    await until("a door that asks for keys", lambda: status("/v1/models") == 401)
    asked: Any = {"model": "tiny-overload", "messages": [{"role": "user", "content": "a river"}]}
    by_its_header = {"x-api-key": BOB, "authorization": anthropic.Omit()}
    async with anthropic.AsyncAnthropic(
        base_url=ROOT, api_key="-", default_headers=by_its_header, max_retries=0
    ) as client:
        assert (await client.messages.create(max_tokens=3, **asked)).usage.output_tokens == 3
        async with client.messages.stream(max_tokens=3, **asked) as stream:
            assert (await stream.get_final_message()).usage.output_tokens == 3
        assert (await client.messages.count_tokens(**asked)).input_tokens > 3
        with pytest.raises(anthropic.PermissionDeniedError) as gold:
            await client.messages.create(
                max_tokens=3, **asked, extra_headers={"x-llm-d-inference-objective": "gold"}
            )
        with pytest.raises(anthropic.BadRequestError):
            await client.messages.create(max_tokens=0, **asked)
    async with anthropic.AsyncAnthropic(base_url=ROOT, api_key="sk-no", max_retries=0) as nobody:
        with pytest.raises(anthropic.AuthenticationError) as wrong:
            await nobody.messages.create(max_tokens=3, **asked)
    assert [e.value.type for e in (gold, wrong)] == ["permission_error", "authentication_error"]
    url = base_url("overload")
    async with AsyncOpenAI(base_url=url, api_key=ALICE, max_retries=0) as client:
        # Three random tokens may be no text at all.
        more = {"model": "tiny-overload", "input": "a river", "max_output_tokens": 24}
        async with client.responses.stream(**more) as events:
            kinds = [event.type async for event in events]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert "response.output_text.delta" in kinds


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
