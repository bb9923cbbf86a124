"""Agents' conversations by Anthropic's and OpenAI's own clients, on a real engine over HTTP."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pytest
import yaml

from replicas.engine import channel
from serve_app.routing.prompt import read_prompt
from tests.vllm.replicas.replica_app import SLOTS, Replica, replica

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PAGE = (Path(__file__).parents[3] / "docs" / "agents.md").read_text()
OPEN = {"extra_paths": ["POST /v1/messages", "POST /v1/messages/count_tokens"]}
ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
SCHEMA = {"type": "object", "properties": {"jar": {"enum": ["red", "blue"]}}, "required": ["jar"]}
TOOL: Any = {"name": "level", "description": "How full a jar is.", "input_schema": SCHEMA}
FUNCTION: Any = {"type": "function", "name": "level", "parameters": SCHEMA}
HI: Any = [{"role": "user", "content": "Say hello."}]
SYSTEM = "You look after jars. " * 20
TURNS, BLOCK = 8, 32
GREEDY: Any = {"extra_body": {"temperature": 0}}


@pytest.fixture(scope="module")
async def served(small_model: Path) -> AsyncIterator[Replica]:
    async with replica(small_model, max_model_len=4096, max_num_batched_tokens=512) as made:
        yield made


@pytest.fixture(autouse=True)
def fresh(served: Replica) -> None:
    served.open(**OPEN)
    served.admit()
    served.counted.clear()


@pytest.fixture
async def claude(served: Replica) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=served.url, api_key="-", max_retries=0) as made:
        yield made


@pytest.fixture
async def gpt(served: Replica) -> AsyncIterator[openai.AsyncOpenAI]:
    base_url = f"{served.url}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="-", max_retries=0) as made:
        yield made


def prompt_tokens(usage: Any) -> int:
    return (
        usage.input_tokens
        + (usage.cache_read_input_tokens or 0)
        + (usage.cache_creation_input_tokens or 0)
    )


async def busy(served: Replica, gpt: openai.AsyncOpenAI, count: int) -> list[asyncio.Task[Any]]:
    """So many requests more that take for ever; returns when they are let in."""

    async def ask() -> Any:
        more = {"ignore_eos": True}
        return await gpt.completions.create(model="m", prompt="a", max_tokens=3000, extra_body=more)

    waiting = served.gate.admission.waiting
    inside = waiting.running + waiting.requests + count
    tasks = [asyncio.create_task(ask()) for _ in range(count)]
    ends = min(inside, SLOTS), inside
    while (waiting.running, waiting.running + waiting.requests) < ends:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return tasks


async def leave(served: Replica, tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    while (await served.report())["running"]:
        pass


async def test_messages_are_closed_until_they_are_opened(served, claude) -> None:
    served.open()
    for path, call in (
        ("/v1/messages", claude.messages.create(model="m", max_tokens=4, messages=HI)),
        ("/v1/messages/count_tokens", claude.messages.count_tokens(model="m", messages=HI)),
    ):
        with pytest.raises(anthropic.NotFoundError) as closed:
            await call
        assert f"`security: {{extra_paths: [POST {path}]}}`" in closed.value.api_message
        assert closed.value.type == "not_found_error"


async def test_a_conversation_of_messages_grows_on_what_is_cached(served, claude) -> None:
    bodies: list[Any] = []
    asked: Any = {"model": "m", "system": SYSTEM, "tools": [TOOL], **GREEDY}
    talk: list[Any] = []
    before = 0
    for turn in range(TURNS):
        talk.append({"role": "user", "content": f"Question {turn}: how full is the red jar?"})
        bodies.append({**asked, "messages": [*talk]})
        called = turn % 5 == 1
        more: Any = {"tool_choice": {"type": "tool", "name": "level"}} if called else {}
        tokens = 80 if called else 8
        if turn % 2:
            answer = await claude.messages.create(max_tokens=tokens, messages=talk, **asked, **more)
        else:
            async with claude.messages.stream(
                max_tokens=tokens, messages=talk, **asked, **more
            ) as stream:
                answer = await stream.get_final_message()
        now = prompt_tokens(answer.usage)
        assert now > before
        assert (answer.usage.cache_read_input_tokens or 0) >= before // BLOCK * BLOCK - BLOCK
        before = now
        talk.append({"role": "assistant", "content": answer.content})
        if called:
            (use,) = answer.content
            assert (use.type, use.name, set(use.input)) == ("tool_use", "level", {"jar"})
            said = {"type": "tool_result", "tool_use_id": use.id, "content": "half full"}
            talk.append({"role": "user", "content": [said, {"type": "text", "text": "Well?"}]})
            answer = await claude.messages.create(max_tokens=8, messages=talk, **asked)
            talk.append({"role": "assistant", "content": answer.content})
    told = await claude.messages.count_tokens(
        model="m", messages=talk[:-1], system=SYSTEM, tools=[TOOL]
    )
    assert told.input_tokens >= before
    found = [read_prompt(SimpleNamespace(**body), 256) for body in bodies]
    assert all(a.prefix == b.prefix[: len(a.prefix)] for a, b in itertools.pairwise(found))
    assert found[-1].prefix and found[-1].chars > found[0].chars


async def test_a_conversation_of_responses_grows_on_what_is_cached(served, gpt) -> None:
    asked: Any = {"model": "m", "instructions": SYSTEM, "tools": [FUNCTION], **GREEDY}
    talk: list[Any] = []
    before = 0
    for turn in range(TURNS):
        talk.append({"role": "user", "content": f"Question {turn}: how full is the red jar?"})
        called = turn % 5 == 1
        more: Any = {"tool_choice": {"type": "function", "name": "level"}} if called else {}
        tokens = 80 if called else 8
        if turn % 2:
            answer = await gpt.responses.create(
                input=talk, max_output_tokens=tokens, **asked, **more
            )
        else:
            async with gpt.responses.stream(
                input=talk, max_output_tokens=tokens, **asked, **more
            ) as stream:
                answer = await stream.get_final_response()
        assert answer.usage.input_tokens > before
        cached = answer.usage.input_tokens_details.cached_tokens
        assert cached >= before // BLOCK * BLOCK - BLOCK
        before = answer.usage.input_tokens
        talk += answer.output
        if called:
            (call,) = answer.output
            assert (call.type, call.name) == ("function_call", "level")
            output = {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": "half full",
            }
            talk.append(output)
            answer = await gpt.responses.create(input=talk, max_output_tokens=8, **asked)
            talk += answer.output


async def test_a_prompt_is_as_long_as_the_same_one_of_chat(claude, gpt) -> None:
    talk: Any = [*HI, {"role": "assistant", "content": "Hello! How can I help you today?"}] * 12
    talk = talk + HI
    whole = [{"role": "system", "content": SYSTEM}, *talk]
    message = await claude.messages.create(model="m", max_tokens=1, system=SYSTEM, messages=talk)
    response = await gpt.responses.create(
        model="m", max_output_tokens=1, instructions=SYSTEM, input=talk
    )
    chat = await gpt.chat.completions.create(model="m", max_tokens=1, messages=whole)
    assert prompt_tokens(message.usage) == chat.usage.prompt_tokens
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    bodies: list[dict[str, Any]] = [
        {"messages": whole},
        {"system": SYSTEM, "messages": talk},
        {"instructions": SYSTEM, "input": talk},
    ]
    found = [read_prompt(SimpleNamespace(**body), 256) for body in bodies]
    assert found[0] == found[1] == found[2]  # so a turn may even change the API


async def test_a_stream_says_what_an_answer_does(claude, gpt) -> None:
    asked: Any = {"model": "m", "max_tokens": 12, "messages": HI, **GREEDY}
    whole = await claude.messages.create(**asked)
    async with claude.messages.stream(**asked) as stream:
        kinds = [event.type async for event in stream]
        assert (await stream.get_final_text()) == whole.content[0].text
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    more: Any = {"model": "m", "input": HI, "max_output_tokens": 12, **GREEDY}
    response = await gpt.responses.create(**more)
    async with gpt.responses.stream(**more) as events:
        assert (await events.get_final_response()).output_text == response.output_text
    assert response.output_text == whole.content[0].text


def run(code: str, url: str) -> None:
    """An example of the page against this server."""
    assert code.count("http://localhost:8000") == code.count('"llama"') == 1
    code = code.replace("http://localhost:8000", url).replace('"llama"', '"m"')
    exec(compile(code.replace("print(", "str("), "docs/agents.md", "exec"), {})


async def test_the_examples_of_the_page_run_with_its_settings(served, tmp_path) -> None:
    (block,) = re.findall(r"```yaml\n(security:.*?)```", PAGE, re.S)
    security = yaml.safe_load(block)["security"]
    file = tmp_path / "keys"
    file.write_text("alice sk-0f6d0c7e9a41b2c3\n")
    served.open(**{**security, "keys": {"file": str(file)}})
    examples = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(examples) == 2
    for code in examples:
        await asyncio.to_thread(run, code.replace('end=""', ""), served.url)
    assert served.counted == [("alice", "let_in")] * 4


@pytest.fixture
def keys(served: Replica, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(
        f"alice {ALICE} classes=gold,silver\nbob {BOB} classes=silver max_in_flight=1\n"
    )
    served.open(keys={"file": str(file)}, **OPEN)


def anthropics(served: Replica, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=served.url, max_retries=0, **options)


@pytest.mark.parametrize("by", ["api_key", "auth_token", "x-api-key"])
async def test_a_key_and_its_class_come_in_any_header_of_anthropics(served, keys, by) -> None:
    headers = {"x-api-key": ALICE, "authorization": anthropic.Omit()}
    own: Any = {"api_key": "-", "default_headers": headers} if by == "x-api-key" else {by: ALICE}
    client = anthropics(served, **own)
    asked: Any = {"model": "m", "max_tokens": 2, "messages": HI}
    assert (await client.messages.create(**asked)).usage.output_tokens == 2
    silver = {"x-llm-d-inference-objective": "silver"}
    await client.messages.create(**asked, extra_headers=silver)
    assert served.gate.admission.counts.let_in == {"gold": 1, "silver": 1}
    assert served.counted == [("alice", "let_in")] * 2


async def test_who_may_not_is_told_so_in_classes_of_anthropics(served, keys) -> None:
    asked: Any = {"model": "m", "max_tokens": 2, "messages": HI}
    with pytest.raises(anthropic.AuthenticationError) as wrong:
        await anthropics(served, api_key=f"{ALICE}x").messages.create(**asked)
    bob = anthropics(served, api_key=BOB)
    with pytest.raises(anthropic.PermissionDeniedError) as gold:
        await bob.messages.create(**asked, extra_headers={"x-llm-d-inference-objective": "gold"})
    async with bob.messages.stream(**{**asked, "max_tokens": 200}) as stream:
        await anext(aiter(stream))
        with pytest.raises(anthropic.RateLimitError) as full:
            await bob.messages.create(**asked)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await anthropics(served, api_key=ALICE).messages.create(**{**asked, "model": "nope"})
    with pytest.raises(anthropic.BadRequestError) as bad:
        await anthropics(served, api_key=ALICE).messages.create(**{**asked, "max_tokens": 0})
    kinds = [found.value.type for found in (wrong, gold, full, unknown, bad)]
    assert kinds == [
        "authentication_error",
        "permission_error",
        "rate_limit_error",
        "not_found_error",
        "invalid_request_error",
    ]
    assert float(full.value.response.headers["retry-after-ms"]) >= 500


async def calls(claude: Any, gpt: Any, stream: bool, **more: Any) -> list[Any]:
    """What both clients raise."""
    found: list[Any] = []
    for call in (
        claude.messages.create(model="m", max_tokens=4, messages=HI, stream=stream, **more),
        gpt.responses.create(model="m", max_output_tokens=4, input=HI, stream=stream, **more),
    ):
        with pytest.raises((anthropic.APIStatusError, openai.APIStatusError)) as raised:
            await call
        found.append(raised.value)
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_who_is_refused_is_told_when_to_come_again(
    served, claude, gpt, stream, monkeypatch
) -> None:
    served.admit(max_waiting=2, shed_at=1.0)
    tasks = await busy(served, gpt, SLOTS)
    late = {"extra_headers": {"x-request-timeout-seconds": "0.2"}}
    with monkeypatch.context() as patch:  # else it is told at once that it would wait too long
        patch.setattr(served.gate, "check", lambda *args, **options: None)
        waited = await calls(claude, gpt, stream, **late)
    tasks += await busy(served, gpt, 2)
    full = await calls(claude, gpt, stream)
    await leave(served, tasks)
    assert [type(error) for error in full] == [anthropic.RateLimitError, openai.RateLimitError]
    for error, status in (*((e, 503) for e in waited), *((e, 429) for e in full)):
        assert (error.status_code, "retry-after" in error.response.headers) == (status, True)
    assert (waited[0].type, full[0].type) == ("overloaded_error", "rate_limit_error")
    assert {e.response.headers["x-brimful-reason"] for e in full} == {"queue_full"}


async def test_an_operators_clock_ends_answers_with_errors_that_both_clients_raise(
    served: Replica, claude: Any, gpt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = (await served.report())["finished"]
    monkeypatch.setattr(served.answers.clocks, "request_timeout_s", 0.05)
    long: Any = {"model": "m", "extra_body": {"ignore_eos": True}}
    count: Any = [{"role": "user", "content": "Count to a hundred."}]
    for stream in (True, False):
        for call in (
            claude.messages.create(max_tokens=400, messages=count, stream=stream, **long),
            gpt.responses.create(max_output_tokens=400, input=count, stream=stream, **long),
            gpt.chat.completions.create(max_tokens=400, messages=count, stream=stream, **long),
        ):
            with pytest.raises((anthropic.APIStatusError, openai.APIError)) as raised:
                _ = [event async for event in await call]
            assert "0.05 s that it has by http_options.request_timeout_s" in str(raised.value)
            if not stream:
                assert raised.value.status_code == 408
    await leave(served, [])
    assert (await served.report())["finished"] == finished  # none was computed to its end


async def test_a_limit_on_tokens_holds_by_every_name(served, claude, gpt) -> None:
    served.open(limits={"max_tokens": 5}, **OPEN)
    with pytest.raises(anthropic.BadRequestError, match=r"security\.limits\.max_tokens"):
        await claude.messages.create(model="m", max_tokens=6, messages=HI)
    with pytest.raises(openai.BadRequestError, match=r"security\.limits\.max_tokens"):
        await gpt.responses.create(model="m", max_output_tokens=6, input=HI)
    whole = await gpt.responses.create(model="m", input="Count to a hundred.")
    assert whole.usage.output_tokens == 5


async def test_gaps_between_tokens_are_counted_as_of_chat(served, claude, gpt) -> None:
    n = served.leaving.gaps.n
    async with claude.messages.stream(model="m", max_tokens=12, messages=HI, **GREEDY) as stream:
        deltas = sum([event.type == "content_block_delta" async for event in stream])
    assert served.leaving.gaps.n - n == deltas - 1 > 5
    n = served.leaving.gaps.n
    events = await gpt.responses.create(
        model="m", max_output_tokens=12, input=HI, stream=True, **GREEDY
    )
    deltas = sum([event.type == "response.output_text.delta" async for event in events])
    # The first one leaves with what announces it, before the item that it is of.
    assert served.leaving.gaps.n - n == deltas - 1 > 5


async def test_both_are_captured(served, claude, gpt) -> None:
    await channel.requests(served.llm, "a test", on=True)
    message = await claude.messages.create(model="m", max_tokens=3, messages=HI)
    response = await gpt.responses.create(model="m", max_output_tokens=4, input=HI)
    found = (await channel.requests(served.llm, "a test", on=False))["requests"]
    assert [(one["input_tokens"], one["output_tokens"], one["max_tokens"]) for one in found] == [
        (prompt_tokens(message.usage), 3, 3),
        (response.usage.input_tokens, 4, 4),
    ]


async def test_what_is_not_kept_is_a_404(gpt) -> None:
    with pytest.raises(openai.NotFoundError, match="resp_1"):
        await gpt.responses.create(model="m", input=HI, previous_response_id="resp_1")


async def test_an_engine_that_dies_ends_streams_with_an_error_of_their_api(served, claude, gpt):
    """The last one: no engine is left."""
    long: Any = {"model": "m", "stream": True, **GREEDY}
    story: Any = [{"role": "user", "content": "Tell me a very long story about a river."}]
    message = await claude.messages.create(max_tokens=2000, messages=story, **long)
    response = await gpt.responses.create(max_output_tokens=2000, input=story, **long)
    for stream, kind in (
        (message, "content_block_delta"),
        (response, "response.output_text.delta"),
    ):
        async for event in stream:
            if event.type == kind:
                break
    (core,) = served.llm.engine_core.resources.engine_manager.processes
    core.kill()
    with pytest.raises(anthropic.APIStatusError) as told:
        async for _ in message:
            pass
    assert told.value.type == "api_error"
    assert "validation error" not in str(told.value)
    with pytest.raises(openai.APIError) as ended:
        async for _ in response:
            pass
    assert (ended.value.code, ended.value.type) == ("500", "server_error")
    for error in await calls(claude, gpt, stream=False):
        assert (error.status_code, "retry-after" in error.response.headers) == (503, True)
