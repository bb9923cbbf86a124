"""The client of ``make bench-path``: streams in its own process, and its own wait for a core.

Each load is one line of JSON on standard input; its result is one line on standard output. C code
splits bytes into HTTP, and events are counted, not parsed as JSON: the client has to stay far below
one core, or it would be measured instead of the server (``python -m benchmarks.path.client``).
"""

import asyncio
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httptools
import uvloop

from controller.errors import BrimfulError

EVENT, DONE = b"data: ", b"data: [DONE]"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one measurement: ``streams`` at a time, each with ``requests_each`` in a row.

    Args:
        url: of the server, such as ``http://127.0.0.1:8000/llm``; ``/v1/completions`` follows.
        prompts: taken in turn; as many as there are requests, or they repeat.
    """

    url: str
    model: str
    streams: int
    requests_each: int
    max_tokens: int
    prompts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The client's measurements of one load.

    Args:
        seconds: from the first request to the last answer's end.
        tokens: of all answers.
        ttft_ms, itl_ms: 50th and 99th percentile; the latter between events of a stream.
        events: chunks; fewer than tokens if the server puts several into one.
        cpu_s: CPU time of the client.
        waited_s: time that the client waited for a core; None: unknown.
    """

    seconds: float
    tokens: int
    events: int
    ttft_ms: tuple[float, float]
    itl_ms: tuple[float, float]
    cpu_s: float
    waited_s: float | None

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def waited_frac(self) -> float:
        """Share of the time in which the client waited for a core; 0 if unknown."""
        return (self.waited_s or 0.0) / self.seconds


class LoadError(BrimfulError):
    """A request was not answered whole; the message has the answer."""


class _Stream(asyncio.Protocol):
    """One connection, and its present request."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._parser: Any = None
        self._finished: asyncio.Future[None] | None = None
        self._carry = b""
        self._body = b""
        self.first_s: float | None = None
        self.last_s = 0.0
        self.gaps_s: list[float] = []
        self.events = 0
        self.usage = b""
        self.done = self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    async def ask(self, message: bytes) -> None:
        """Send it and wait for the end of its answer."""
        self._parser = httptools.HttpResponseParser(self)
        self._finished = asyncio.get_running_loop().create_future()
        self._carry, self._body = b"", b""
        self.first_s, self.gaps_s, self.events = None, [], 0
        self.usage, self.done = b"", False
        self._transport.write(message)
        await self._finished
        if self._parser.get_status_code() != 200 or not self.done or not self.usage:
            raise LoadError(f"status {self._parser.get_status_code()}: {self._body[-300:]!r}")

    def data_received(self, data: bytes) -> None:
        self._now_s = time.perf_counter()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """A part of the answer; an event may be cut anywhere."""
        self._body = body
        text = self._carry + body
        if DONE in text:
            self.done = True
        *events, self._carry = text.split(b"\n\n")
        for event in events:
            # The last event but one has the usage and no token.
            if event.startswith(EVENT) and b'"choices":[]' not in event and DONE not in event:
                self.events += 1
                if self.first_s is None:
                    self.first_s = self._now_s
                else:
                    self.gaps_s.append(self._now_s - self.last_s)
                self.last_s = self._now_s
            elif b'"usage"' in event:
                self.usage = event

    def on_message_complete(self) -> None:
        self.closed = not self._parser.should_keep_alive()
        if self._finished and not self._finished.done():
            self._finished.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._finished and not self._finished.done():
            self._finished.set_exception(LoadError(f"the connection ended: {exc!r}"))

    def close(self) -> None:
        self._transport.close()


class _Tally:
    """The sums over all streams."""

    def __init__(self) -> None:
        self.tokens = self.events = 0
        self.ttft_s: list[float] = []
        self.gaps_s: list[float] = []

    def add(self, stream: _Stream, asked_s: float) -> None:
        """Count the answer that just ended on a stream."""
        assert stream.first_s is not None
        self.ttft_s.append(stream.first_s - asked_s)
        self.gaps_s += stream.gaps_s
        self.events += stream.events
        self.tokens += json.loads(stream.usage.removeprefix(EVENT))["usage"]["completion_tokens"]


async def run(load: Load) -> Seen:
    """Send the load; returns the measurements.

    Raises:
        LoadError: an answer was not whole.
        OSError: the server does not listen.
    """
    parts, tally = urlsplit(load.url), _Tally()
    messages = [_message(load, parts.netloc, parts.path, prompt) for prompt in load.prompts]
    clocks = _clocks()
    begin_s = time.perf_counter()

    async def stream(index: int) -> None:
        loop, connection = asyncio.get_running_loop(), None
        try:
            for turn in range(load.requests_each):
                asked_s = time.perf_counter()
                if connection is None or connection.closed:
                    _, connection = await loop.create_connection(
                        _Stream, str(parts.hostname), parts.port or 80
                    )
                await connection.ask(messages[(turn * load.streams + index) % len(messages)])
                tally.add(connection, asked_s)
        finally:
            if connection is not None:
                connection.close()

    await asyncio.gather(*map(stream, range(load.streams)))
    seconds = time.perf_counter() - begin_s
    cpu_s, waited_s = (after - before for before, after in zip(clocks, _clocks(), strict=True))
    return Seen(
        seconds,
        tally.tokens,
        tally.events,
        percentiles_ms(tally.ttft_s),
        percentiles_ms(tally.gaps_s),
        cpu_s,
        waited_s,
    )


def percentiles_ms(values_s: list[float]) -> tuple[float, float]:
    """The 50th and 99th percentile in milliseconds, each a value that occurred; 0 of none."""
    if not values_s:
        return 0.0, 0.0
    ordered = sorted(values_s)
    last = len(ordered) - 1
    return 1000 * ordered[round(0.5 * last)], 1000 * ordered[round(0.99 * last)]


def _message(load: Load, host: str, path: str, prompt: str) -> bytes:
    body = json.dumps(
        {
            "model": load.model,
            "prompt": prompt,
            "max_tokens": load.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        f"POST {path}/v1/completions HTTP/1.1\r\nhost: {host}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _clocks() -> tuple[float, float]:
    """CPU seconds of this process, and seconds in which its threads waited for a core."""
    waited_ns = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        waited_ns += int(task.read_text().split()[1])
    return time.process_time(), waited_ns / 1e9


def main() -> None:
    """Answer loads until standard input ends."""
    gc.disable()  # a pause of the client would look like one of the server
    for line in sys.stdin:
        load = Load(**json.loads(line))
        try:
            answer: dict[str, Any] = {"seen": asdict(uvloop.run(run(load)))}
        except (LoadError, OSError, ConnectionError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
