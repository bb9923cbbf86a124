"""The client of the path's benchmark, on a server that sends what a test wants, cut anywhere."""

import asyncio
import contextlib
import json
from collections.abc import Sequence

import pytest

from benchmarks.path.client import Load, LoadError, Seen, run


def event(text: str) -> bytes:
    """As vLLM sends a token."""
    return b'data: {"choices":[{"text":"' + text.encode() + b'"}]}\n\n'


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
WHOLE = event("a") + event("b") + USAGE + DONE


async def seen(
    pieces: Sequence[bytes], *, streams: int = 1, turns: int = 1, close: bool = False
) -> Seen:
    """What the client sees of a server that sends these pieces, each a chunk and a packet."""
    asked = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"\r\n\r\n" in (head := await _head(reader)):
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            asked.append(json.loads(await reader.readexactly(length)))
            ending = b"connection: close\r\n" if close else b""
            writer.write(b"HTTP/1.1 200 OK\r\n" + ending + b"transfer-encoding: chunked\r\n\r\n")
            for piece in pieces:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            if close:
                break
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    load = Load(f"http://127.0.0.1:{port}/app", "tiny", streams, turns, 2, ("one", "two"))
    try:
        found = await run(load)
    finally:
        server.close()
    assert len(asked) == streams * turns
    assert {body["max_tokens"] for body in asked} == {2}
    return found


async def _head(reader: asyncio.StreamReader) -> bytes:
    """A request up to its body; nothing where the client closed the connection."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        return await reader.readuntil(b"\r\n\r\n")
    return b""


@pytest.mark.parametrize("close", [False, True])
async def test_tokens_are_those_of_the_usage_and_events_those_that_hold_text(close: bool) -> None:
    found = await seen([event("a"), event("b"), USAGE + DONE], streams=2, turns=3, close=close)
    assert (found.tokens, found.events) == (12, 12)
    assert 0 < found.itl_ms[0] <= found.itl_ms[1]
    assert 0 < found.ttft_ms[0] <= 1000 * found.seconds


async def test_an_event_may_be_cut_anywhere() -> None:
    assert (await seen([WHOLE[k : k + 7] for k in range(0, len(WHOLE), 7)])).events == 2


async def test_events_in_one_packet_have_no_time_between_them() -> None:
    assert (await seen([WHOLE])).itl_ms == (0.0, 0.0)


async def test_an_answer_that_is_not_whole_is_an_error() -> None:
    with pytest.raises(LoadError, match="status 200"):
        await seen([event("a"), event("b")])


async def test_the_client_says_how_its_time_went() -> None:
    found = await seen([event("a"), event("b"), USAGE + DONE])
    assert found.cpu_s + (found.waited_s or 0) + found.slept_s == pytest.approx(found.seconds, 0.05)
    assert 0 <= found.waited_frac < 1
