"""The load generator against a server of three lines."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from serve_app.demo.client import Ask, send


async def complete(request: web.Request) -> web.StreamResponse:
    """As vLLM streams: a chunk for each token, its usage, and [DONE] but for one that breaks."""
    body = await request.json()
    if body["max_tokens"] > 10:
        return web.json_response({"error": {"message": "too long"}}, status=400)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(body["max_tokens"]):
        chunk = {"choices": [{"text": "a"}]}
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    usage = {"choices": [], "usage": {"completion_tokens": body["max_tokens"]}}
    await response.write(b"data: " + json.dumps(usage).encode() + b"\n\n")
    if body["prompt"] != "breaks":
        await response.write(b"data: [DONE]\n\n")
    return response


@pytest.fixture
async def base_url() -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1"))


async def test_each_answer_is_timed_chunk_by_chunk(base_url: str) -> None:
    seen = []
    asks = [Ask("a", 4), Ask("a", 1, at_s=0.05)]
    answers = await send(base_url, "m", asks, done=seen.append)
    assert [a.whole for a in answers] == [True, True]
    assert [(a.tokens, a.text, len(a.itl_s)) for a in answers] == [(4, "aaaa", 3), (1, "a", 0)]
    assert all(a.ttft_s is not None and 0 < a.ttft_s <= a.total_s for a in answers)
    assert sorted(seen, key=lambda a: -a.tokens) == answers


async def test_a_refusal_and_a_broken_stream_are_not_whole(base_url: str) -> None:
    refused, broken = await send(base_url, "m", [Ask("a", 11), Ask("breaks", 2)])
    assert (refused.whole, refused.status, refused.itl_s) == (False, 400, ())
    assert "too long" in refused.text
    assert (broken.whole, broken.error) == (False, "the stream ended before [DONE]")
