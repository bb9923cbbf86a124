"""The client of the overload bench against a server that refuses, breaks and serves."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.overload.client import Planned, send


async def answer(request: Request) -> Response:
    asked = await request.json()
    name = asked["service_tier"]
    tries = request.app.state.tries
    tries[name] += 1
    again = {"retry-after-ms": "10"}
    error = {"error": {"message": "no", "type": "t", "code": 429}}
    if name == "refused" or (name == "once" and tries[name] == 1):
        return JSONResponse(error, 429, again)
    if name == "late":
        return JSONResponse(error, 503, again)

    if name == "slow":
        await asyncio.sleep(60)

    async def frames() -> AsyncIterator[str]:
        for _ in range(1 if name == "broken" else asked["max_tokens"]):
            chunk = {"id": "1", "object": "text_completion", "created": 1, "model": "m"}
            chunk["choices"] = [{"index": 0, "text": "a", "finish_reason": None}]
            yield f"data: {json.dumps(chunk)}\n\n"
        if name == "broken":
            yield f"data: {json.dumps(error)}\n\n"
        yield "data: [DONE]\n\n"

    headers = {"x-brimful-predicted-wait-ms": "250"}
    return StreamingResponse(frames(), media_type="text/event-stream", headers=headers)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = Starlette(routes=[Route("/v1/completions", answer, methods=["POST"])])
    app.state.tries = Counter()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        server.should_exit = server.force_exit = True
        await task


async def test_what_requests_come_to_with_their_attempts(url: str) -> None:
    names = ["served", "once", "refused", "late", "broken"]
    planned = [Planned(0.01 * i, name, 5, 4) for i, name in enumerate(names)]
    found = dict(zip(names, await send(url, "m", planned), strict=True))
    assert {n: [a.status for a in o.attempts] for n, o in found.items()} == {
        "served": [200],
        "once": [429, 200],
        "refused": [429, 429, 429],
        "late": [503, 503, 503],
        "broken": [200],
    }
    assert [o.whole for o in found.values()] == [True, True, False, False, False]
    assert found["broken"].broken
    assert found["served"].predicted_s == 0.25
    assert found["refused"].predicted_s is None
    once = found["once"]
    assert once.first_s is not None
    assert once.ttft_s is not None
    assert once.ttft_s <= once.first_s - once.attempts[0].sent_s
    assert all(a.answered_s is not None for o in found.values() for a in o.attempts)


async def test_nobody_there_is_no_status() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        (outcome,) = await send(gone, "m", [Planned(0.0, "a", 1, 1)])
    assert outcome.status is None
    assert [a.status for a in outcome.attempts] == [None, None, None]


async def test_what_is_under_way_at_the_end_is_ended_and_said_to_be(url: str) -> None:
    planned = [Planned(0.0, "slow", 5, 4), Planned(0.0, "served", 5, 4)]
    slow, served = await send(url, "m", planned, end_s=1.0)
    assert (slow.unfinished, slow.whole, slow.status) == (True, False, None)
    assert slow.ended_s >= 1.0
    assert (served.unfinished, served.whole) == (False, True)
