"""Structured output over HTTP, asked by OpenAI's own client: no 500 for what a client asked for."""

from typing import Any

import httpx
import pytest
from openai import BadRequestError

from tests.vllm.replicas.admission_app import Served

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

NOTHING = {"structured_outputs": {"grammar": "root ::= root"}}
MESSAGES: Any = [{"role": "user", "content": "a river"}]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_grammar_that_allows_nothing_is_a_400(served: Served, stream: bool) -> None:
    with pytest.raises(BadRequestError) as completion:
        await served.complete(4, stream=stream, extra_body=NOTHING)
    with pytest.raises(BadRequestError) as chat:
        await served.client.chat.completions.create(
            model="m", messages=MESSAGES, max_tokens=4, stream=stream, n=2, extra_body=NOTHING
        )
    for refused in (completion, chat):
        assert refused.value.body["message"] == "structured output: the grammar allows no token"
    assert (await served.complete(4)).usage.completion_tokens == 4
    await served.idle()


async def test_so_it_is_of_responses(served: Served) -> None:
    body = {"model": "m", "input": "a river", "max_output_tokens": 4, **NOTHING}
    async with httpx.AsyncClient(base_url=served.url) as client:
        whole = await client.post("/v1/responses", json=body)
    # Events that only announce it are held until the engine has said something.
    with pytest.raises(BadRequestError) as refused:
        await served.client.responses.create(
            model="m", input="a river", max_output_tokens=4, stream=True, extra_body=NOTHING
        )
    assert (whole.status_code, whole.json()["error"]["type"]) == (400, "BadRequestError")
    assert refused.value.body["message"] == "structured output: the grammar allows no token"
    await served.idle()


async def test_a_schema_is_kept_to(served: Served) -> None:
    # What `make fuzz` found: any schema, and penalties beside it.
    body: Any = {
        "model": "m",
        "input": "a river",
        "max_output_tokens": 16,
        "presence_penalty": 1.6467259591568952,
        "text": {"format": {"type": "json_schema", "name": "", "strict": True, "schema": {}}},
    }
    async with httpx.AsyncClient(base_url=served.url) as client:
        answers = [await client.post("/v1/responses", json=body) for _ in range(4)]
    assert {answer.status_code for answer in answers} == {200}
