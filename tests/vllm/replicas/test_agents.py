"""Messages and Responses, by Anthropic's and OpenAI's own clients over HTTP."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.vllm.replicas.replica_app import SLOTS, Replica, leave, serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

OPEN = {"extra_paths": ["POST /v1/messages", "POST /v1/messages/count_tokens"]}
ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
ASKED: Any = {"model": "m", "messages": [{"role": "user", "content": "Say hello."}]}
GOLD = {"x-llm-d-inference-objective": "gold"}


@pytest.fixture(scope="module")
async def made(tiny_llama: Path) -> AsyncIterator[Replica]:
    async with serving(tiny_llama) as replica:
        yield replica


@pytest.fixture
def served(made: Replica, tmp_path: Path) -> Replica:
    file = tmp_path / "keys"
    file.write_text(
        f"alice {ALICE} classes=silver,gold\nbob {BOB} classes=silver max_in_flight=1\n"
    )
    made.open(keys={"file": str(file)}, **OPEN)
    made.admit()
    return made


def claude(served: Replica, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=served.url, max_retries=0, **options)


@pytest.mark.parametrize("by", ["api_key", "auth_token", "x-api-key"])
async def test_a_key_and_its_class_come_in_any_header_of_anthropics(served, by) -> None:
    headers = {"x-api-key": ALICE, "authorization": anthropic.Omit()}
    own: Any = {"api_key": "-", "default_headers": headers} if by == "x-api-key" else {by: ALICE}
    create = claude(served, **own).messages.create
    assert (await create(max_tokens=2, **ASKED)).usage.output_tokens == 2
    await create(max_tokens=2, **ASKED, extra_headers=GOLD)
    assert served.gate.admission.counts.let_in == {"silver": 1, "gold": 1}


async def test_who_may_not_is_told_so_in_classes_of_anthropics(served) -> None:
    alice, bob = (claude(served, api_key=key).messages for key in (ALICE, BOB))
    with pytest.raises(anthropic.AuthenticationError) as wrong:
        await claude(served, api_key=f"{ALICE}x").messages.create(max_tokens=2, **ASKED)
    with pytest.raises(anthropic.PermissionDeniedError) as gold:
        await bob.create(max_tokens=2, **ASKED, extra_headers=GOLD)
    async with bob.stream(max_tokens=200, **ASKED) as stream:
        await anext(aiter(stream))
        with pytest.raises(anthropic.RateLimitError) as full:
            await bob.create(max_tokens=2, **ASKED)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        await alice.create(max_tokens=2, **{**ASKED, "model": "nope"})
    with pytest.raises(anthropic.BadRequestError) as bad:
        await alice.create(max_tokens=0, **ASKED)
    assert [found.value.type for found in (wrong, gold, full, unknown, bad)] == [
        "authentication_error",
        "permission_error",
        "rate_limit_error",
        "not_found_error",
        "invalid_request_error",
    ]
    assert float(full.value.response.headers["retry-after-ms"]) >= 500


@pytest.fixture
def both(made: Replica) -> Replica:
    """Without keys."""
    made.open(**OPEN)
    made.admit(max_waiting=2, shed_at=1.0)
    return made


async def raised(served: Replica, tokens: int = 4, **more: Any) -> list[Any]:
    """What both clients raise."""
    found: list[Any] = []
    for call in (
        claude(served, api_key="-").messages.create(max_tokens=tokens, **ASKED, **more),
        served.client.responses.create(model="m", max_output_tokens=tokens, input="hi", **more),
    ):
        with pytest.raises((anthropic.APIStatusError, openai.APIError)) as told:
            answer = await call
            _ = [event async for event in answer]
        found.append(told.value)
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_who_is_refused_is_told_when_to_come_again(both, stream, monkeypatch) -> None:
    tasks = await both.busy(SLOTS)
    late = {"extra_headers": {"x-request-timeout-seconds": "0.2"}}
    with monkeypatch.context() as patch:  # else it is told at once that it would wait too long
        patch.setattr(both.gate, "check", lambda *args, **options: None)
        waited = await raised(both, stream=stream, **late)
    tasks += await both.busy(2)
    full = await raised(both, stream=stream)
    await leave(tasks)
    await both.idle()
    assert [type(error) for error in full] == [anthropic.RateLimitError, openai.RateLimitError]
    for error, status in (*((e, 503) for e in waited), *((e, 429) for e in full)):
        assert (error.status_code, "retry-after" in error.response.headers) == (status, True)
    assert (waited[0].type, full[0].type) == ("overloaded_error", "rate_limit_error")
    assert {e.response.headers["x-brimful-reason"] for e in full} == {"queue_full"}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_operators_clock_ends_answers_with_errors_that_both_clients_raise(
    both: Replica, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = (await both.report())["finished"]
    monkeypatch.setattr(both.answers.clocks, "request_timeout_s", 0.3)
    for error in await raised(both, 400, stream=stream):
        assert "0.3 s that it has by http_options.request_timeout_s" in str(error)
        assert stream or error.status_code == 408
    await both.idle()
    assert (await both.report())["finished"] == finished  # none was computed to its end


async def test_an_engine_that_dies_ends_streams_with_an_error_of_their_api(both) -> None:
    """The last one: no engine is left."""
    message = await claude(both, api_key="-").messages.create(max_tokens=900, stream=True, **ASKED)
    more: Any = {"model": "m", "max_output_tokens": 900, "input": "hi", "stream": True}
    response = await both.client.responses.create(**more)
    for stream in (message, response):
        await anext(aiter(stream))
    (core,) = both.llm.engine_core.resources.engine_manager.processes
    core.kill()
    with pytest.raises(anthropic.APIStatusError) as told:
        _ = [event async for event in message]
    assert told.value.type == "api_error"
    assert "validation error" not in str(told.value)
    with pytest.raises(openai.APIError) as ended:
        _ = [event async for event in response]
    assert (ended.value.code, ended.value.type) == ("500", "server_error")
    for error in await raised(both, stream=False):
        assert (error.status_code, "retry-after" in error.response.headers) == (503, True)
