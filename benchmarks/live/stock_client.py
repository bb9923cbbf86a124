"""OpenAI's own client with retries, for benches; records each HTTP attempt."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
from openai import APIError, AsyncOpenAI
from openai.types import Completion, CompletionChoice

ID = "x-bench-id"  # header with a request's number


@dataclass(slots=True)
class Attempt:
    """One HTTP attempt of a request."""

    sent_s: float
    status: int | None = None
    answered_s: float | None = None  # when its status came


@dataclass(slots=True)
class Answer:
    """A request's answer as its client sees it; times on the client's clock.

    Attributes:
        attempts: HTTP attempts of the request.
        parts_s: time of each part with a choice.
        tokens: ids, if the request has ``return_token_ids``.
        finished: whether its end came.
        error: the exception of the last attempt.
    """

    attempts: list[Attempt] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    parts_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finished: bool = False
    error: Exception | None = None

    def add(self, choices: Sequence[CompletionChoice], now_s: float) -> None:
        """Add a part."""
        if choices:
            self.parts_s.append(now_s)
        for choice in choices:
            self.tokens += (choice.model_extra or {}).get("token_ids") or []
            self.finished |= choice.finish_reason is not None


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

    async def ask(self, number: str, answer: Answer, **body: Any) -> None:
        """Send a completion request, and fill in its answer while it comes."""
        answer.attempts = self.attempts[number]
        create = self.api.completions.with_raw_response.create
        try:
            raw = await create(extra_headers={ID: number}, **body)
            answer.headers = raw.headers
            parsed = raw.parse()
            if isinstance(parsed, Completion):
                answer.add(parsed.choices, self.now_s())
            else:
                async for chunk in parsed:
                    answer.add(chunk.choices, self.now_s())
        except (APIError, httpx2.HTTPError) as error:
            answer.error = error
