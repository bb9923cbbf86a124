import asyncio
from typing import Any

import pytest

from replicas.workarounds.disconnects import DisconnectMiddleware

POST = {"type": "http", "method": "POST"}
BODY = {"type": "http.request", "body": b"{}"}
LEFT = {"type": "http.disconnect"}


async def never() -> Any:
    await asyncio.Event().wait()


async def test_a_request_that_is_cancelled_hears_of_a_disconnect_and_ends_by_itself() -> None:
    sent: list[Any] = []
    seen: list[Any] = []
    messages: asyncio.Queue[Any] = asyncio.Queue()
    messages.put_nowait(BODY)
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())
        await send({"type": "http.response.start"})
        seen.append(await receive())
        seen.append(await receive())
        await send({"type": "http.response.body"})
        ended.set()
        raise RuntimeError("of no interest to anybody")

    async def send(message: Any) -> None:
        sent.append(message["type"])

    request = asyncio.create_task(DisconnectMiddleware(app)(POST, messages.get, send))
    while not sent:  # noqa: ASYNC110 - the app tells nobody
        await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await ended.wait()
    assert seen == [BODY, LEFT, LEFT]
    assert sent == ["http.response.start"]


async def test_what_the_app_raises_is_raised() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("of the app")

    with pytest.raises(ValueError, match="of the app"):
        await DisconnectMiddleware(app)(POST, never, never)


@pytest.mark.parametrize("scope", [{"type": "lifespan"}, {"type": "http", "method": "GET"}])
async def test_what_computes_nothing_is_left_alone(scope: Any) -> None:
    given: list[Any] = []

    async def app(*called: Any) -> None:
        given.extend(called)

    await DisconnectMiddleware(app)(scope, never, never)
    assert given == [scope, never, never]


async def test_an_app_that_does_not_listen_is_cancelled_a_little_later(monkeypatch):
    monkeypatch.setattr("replicas.workarounds.disconnects.ENDS_BY_ITSELF_S", 0.01)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    request = asyncio.create_task(DisconnectMiddleware(app)(POST, never, never))
    await begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert not ended.is_set()
    await ended.wait()
