"""OpenAI's own client with retries, for benches; records each HTTP attempt."""

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import httpx2
from openai import AsyncOpenAI

ID = "x-bench-id"  # header with a request's number


@dataclass(slots=True)
class Attempt:
    """One HTTP attempt of a request."""

    sent_s: float
    status: int | None = None
    answered_s: float | None = None  # when its status came


class StockClient:
    """The client, on a clock that begins with it.

    Attributes:
        api: OpenAI's.
        attempts: by a request's ``ID``.
    """

    def __init__(self, base_url: str, timeout_s: float) -> None:
        self.attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        self._begin_s = time.perf_counter()
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        hooks: dict[str, list[Any]] = {"request": [self._sent], "response": [self._answered]}
        http = httpx2.AsyncClient(limits=limits, event_hooks=hooks, timeout=timeout_s)
        self.api = AsyncOpenAI(base_url=base_url, api_key="-", http_client=http, timeout=timeout_s)

    def now_s(self) -> float:
        return time.perf_counter() - self._begin_s

    async def _sent(self, request: httpx2.Request) -> None:
        self.attempts[request.headers[ID]].append(Attempt(self.now_s()))

    async def _answered(self, response: httpx2.Response) -> None:
        attempt = self.attempts[response.request.headers[ID]][-1]
        attempt.status, attempt.answered_s = response.status_code, self.now_s()
