"""Streaming load on an OpenAI-compatible server, measured at the client, request by request."""

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

LENGTH, END = "emulated_tokens", 2  # how replicas.emulator.executor is told where an answer ends
WORDS = ("the", "a", "river", "jar", "brim", "queue", "batch", "token", "memory", "request", "step")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: what is asked (a text or token ids), and how many seconds after the start.

    Args:
        output_tokens: how many of its ``max_tokens`` an emulated accelerator generates; None: all.
    """

    prompt: str | list[int]
    max_tokens: int
    at_s: float = 0.0
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Args:
        status: the HTTP status; 0 if the connection broke.
        text: the whole answer, or the error's text.
        tokens: tokens the server reports it sent.
        ttft_s: from sending to the first chunk; None if none came.
        itl_s: between chunks.
        error: what broke a stream that had begun; None if it is whole.
        late_s: how much later than ``Ask.at_s`` the client sent it.
    """

    status: int
    text: str
    tokens: int
    ttft_s: float | None
    itl_s: tuple[float, ...]
    total_s: float
    error: str | None = None
    late_s: float = 0.0

    @property
    def whole(self) -> bool:
        """Whether the request finished as asked."""
        return self.status == 200 and self.error is None


def prompts(n: int, words: tuple[int, int], seed: int) -> list[str]:
    """``n`` random prompts of ``words[0]`` to ``words[1]`` words."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(*words))) for _ in range(n)]


async def send(
    base_url: str,
    model: str,
    asks: Sequence[Ask],
    *,
    stream: bool = True,
    done: Callable[[Answer], None] = lambda answer: None,
    api_key: str | None = None,
) -> list[Answer]:
    """Send all of ``asks``, greedy and to their full length; answers in the same order.

    Args:
        base_url: such as ``http://127.0.0.1:8000/v1``.
        done: told each answer as it ends.
        api_key: sent with every request, if the server asks for one.
    """
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, headers=headers
    ) as session:
        begin_s = time.perf_counter()

        async def one(ask: Ask) -> Answer:
            await asyncio.sleep(begin_s + ask.at_s - time.perf_counter())
            late_s = max(time.perf_counter() - begin_s - ask.at_s, 0.0)
            answer = await _ask(session, f"{base_url}/completions", model, ask, stream)
            answer = replace(answer, late_s=late_s)
            done(answer)
            return answer

        return list(await asyncio.gather(*map(one, asks)))


async def _ask(
    session: aiohttp.ClientSession,
    url: str,
    model: str,
    ask: Ask,
    stream: bool,
) -> Answer:
    body: dict[str, Any] = {
        "model": model,
        "prompt": ask.prompt,
        "max_tokens": ask.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }
    if ask.output_tokens is not None:
        body |= {"vllm_xargs": {LENGTH: ask.output_tokens}, "stop_token_ids": [END]}
    if stream:
        body["stream_options"] = {"include_usage": True}
    start_s = time.perf_counter()
    seen = _Seen(start_s)
    status = 0
    try:
        async with session.post(url, json=body) as response:
            status = response.status
            if status != 200 or not stream:
                seen.whole_body(await response.text(), status)
            else:
                async for line in response.content:
                    seen.line(line)
    except aiohttp.ClientError as error:
        seen.error = repr(error)
    return seen.answer(status)


class _Seen:
    """What was read of one answer so far."""

    def __init__(self, start_s: float) -> None:
        self.start_s = self.last_s = start_s
        self.first_s: float | None = None
        self.gaps: list[float] = []
        self.parts: list[str] = []
        self.tokens = 0
        self.ended = False
        self.error: str | None = None

    def line(self, line: bytes) -> None:
        """One line of a server-sent event stream."""
        if not line.startswith(b"data: "):
            return
        now_s, data = time.perf_counter(), line[6:].strip()
        if data == b"[DONE]":
            self.ended = True
            return
        chunk = json.loads(data)
        if "error" in chunk:
            self.error = json.dumps(chunk["error"])
        self.tokens = (chunk.get("usage") or {}).get("completion_tokens", self.tokens)
        for choice in chunk.get("choices", ()):
            if self.first_s is None:
                self.first_s = now_s
            else:
                self.gaps.append(now_s - self.last_s)
            self.last_s = now_s
            self.parts.append(choice["text"])

    def whole_body(self, text: str, status: int) -> None:
        """An answer that does not stream, or an error."""
        self.ended = True
        if status == 200:
            body = json.loads(text)
            self.parts = [body["choices"][0]["text"]]
            self.tokens = body["usage"]["completion_tokens"]
        else:
            self.parts = [text]

    def answer(self, status: int) -> Answer:
        error = self.error
        if error is None and status == 200 and not self.ended:
            error = "the stream ended before [DONE]"
        return Answer(
            status=status,
            text="".join(self.parts),
            tokens=self.tokens,
            ttft_s=None if self.first_s is None else self.first_s - self.start_s,
            itl_s=tuple(self.gaps),
            total_s=time.perf_counter() - self.start_s,
            error=error,
        )
