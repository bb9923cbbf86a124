"""Gaps between the chunks that leave the server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from controller.law.client_feedback import Gaps
from replicas.server.egress import LeavingMiddleware, LeavingTokens, counted_items

POST = {"type": "http", "method": "POST"}


class Clock:
    """Moves by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> LeavingTokens:
    tokens = LeavingTokens(clock)
    tokens.limit_s = 0.05
    return tokens


def chunk(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def stream(
    tokens: LeavingTokens,
    clock: Clock,
    chunks: list[tuple[float, dict[str, Any]]],
    *,
    scope: dict[str, Any] = POST,
    reading_s: float = 0.0,
) -> list[dict[str, Any]]:
    """Send each chunk at its time, to a client that takes ``reading_s`` for each."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        clock.now_s += reading_s
        sent.append(message)

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for wait_s, message in chunks:
            clock.now_s += wait_s
            await send(message)

    await LeavingMiddleware(app, tokens)(scope, None, send)
    return sent


async def test_gaps_count_from_the_second_chunk_on_and_its_end_is_no_token(tokens, clock):
    chunks = [
        (9.0, chunk(b"data: a\n\n")),
        (0.04, chunk(b"data: b\n\n")),
        (0.055, chunk(b"data: c\n\n")),
        (0.06, chunk(b"data: [DONE]\n\n")),
        (0.06, chunk(b"", more=False)),
    ]
    sent = await stream(tokens, clock, chunks)
    assert sent[1:] == [message for _, message in chunks]
    assert tokens.gaps == Gaps(2, 1)


async def test_what_shorter_steps_would_not_bring_inside_is_not_late(tokens, clock):
    for gap_s, late in ((0.05, 0), (0.0501, 1), (0.05 / 0.85, 2), (0.059, 2), (0.5, 2)):
        tokens.add(gap_s)
        assert tokens.gaps.late == late
    assert tokens.gaps.n == 5


async def test_a_chunk_without_a_token_ends_no_gap(tokens: LeavingTokens, clock: Clock) -> None:
    others = (b": keep-alive\n\n", b'data: {"error": {}}\n\n', b"data: [DONE]\n\n")
    await stream(tokens, clock, [(0.055, chunk(body)) for body in (b"data: a\n\n", *others)])
    assert tokens.gaps == Gaps()


@pytest.mark.parametrize(
    ("before", "delta", "after"),
    [
        (
            [b"event: message_start\n", b"event: content_block_start\n"],
            b"event: content_block_delta\n",
            [b"event: content_block_stop\n", b"event: message_delta\n", b"event: message_stop\n"],
        ),
        (
            [b"event: response.created\n", b"event: response.output_item.added\n"],
            b"event: response.output_text.delta\n",
            [b"event: response.output_text.done\n", b"event: error\n"],
        ),
    ],
)
async def test_of_named_events_those_with_a_token_count(tokens, clock, before, delta, after):
    events = [*((0.055, one) for one in before), (0.055, delta), (0.04, delta), (0.055, after[0])]
    events += [(0.0, delta), *((0.055, one) for one in after)]
    await stream(tokens, clock, [(wait_s, chunk(body + b"data: {}")) for wait_s, body in events])
    assert tokens.gaps == Gaps(2, 1)  # of the second the whole time, and not from the event between


async def test_what_a_client_takes_to_read_is_its_own(tokens: LeavingTokens, clock: Clock) -> None:
    chunks = [(0.04, chunk(b"data: a\n\n"))] * 4
    await stream(tokens, clock, chunks, reading_s=3.0)
    assert tokens.gaps == Gaps(3, 0)


async def test_an_answer_in_one_piece_and_other_methods_have_no_gaps(tokens, clock):
    await stream(tokens, clock, [(1.0, chunk(b"{}", more=False))])
    await stream(tokens, clock, [(1.0, chunk(b"a"))] * 3, scope={"type": "http", "method": "GET"})
    await stream(tokens, clock, [(1.0, chunk(b"a"))] * 3, scope={"type": "lifespan"})
    assert tokens.gaps == Gaps()


async def test_nothing_is_late_without_an_sla(tokens: LeavingTokens, clock: Clock) -> None:
    tokens.limit_s = None
    await stream(tokens, clock, [(1.0, chunk(b"data: a\n\n"))] * 3)
    assert tokens.gaps == Gaps(2, 0)


async def test_chunks_that_leave_as_values_count_alike(tokens: LeavingTokens, clock: Clock) -> None:
    closed = []

    async def items() -> AsyncIterator[Any]:
        try:
            for wait_s, item in [(9.0, "data: a"), (0.055, "data: b"), (0.06, "data: [DONE]")]:
                clock.now_s += wait_s
                yield item
            yield {"whole": "answer"}
        finally:
            closed.append(True)

    got = [item async for item in counted_items(items(), tokens)]  # type: ignore[arg-type]
    assert got == ["data: a", "data: b", "data: [DONE]", {"whole": "answer"}]
    assert tokens.gaps == Gaps(1, 1)
    assert closed == [True]
