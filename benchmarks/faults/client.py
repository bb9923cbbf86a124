"""Steady load by OpenAI's own client with retries: how each request ended."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import httpx2
from openai import APIConnectionError, APIStatusError

from benchmarks.live.stock_client import Answer, StockClient

TIMEOUT_S = 60.0
OUTPUT_TOKENS = (15, 60)
REFUSALS = ("queue_full", "shed", "deadline", "queue_timeout")
STREAMED = 2 / 3  # share of the requests that ask for a stream

End = Literal["whole", "refused", "event", "failed", "cut", "silent"]
MEANING: dict[End, str] = {
    "whole": "answered whole",
    "refused": "refused by admission with a status, after the client's retries",
    "event": "ended with an error event inside the stream",
    "failed": "failed at the client before any byte, after its retries",
    "cut": "cut in the stream: an exception at the client, without an event",
    "silent": "stream ended without an end or an error",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request ended.

    Args:
        at_s: when it was sent, from the load's start.
        attempts: HTTP attempts.
        ttft_s: to the first token, over all attempts; None: none came.
        error: of the last attempt.
    """

    at_s: float
    end: End
    attempts: int
    ttft_s: float | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """How the requests of a load ended.

    Args:
        retried: requests with more than one attempt.
        worst_ttft_s: the longest time to a first token, over all attempts.
        errors: counts by message, of requests that were not whole.
    """

    sent: int
    ends: dict[str, int]
    retried: int
    worst_ttft_s: float
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Accepted, and ended without a status or an error event."""
        return self.ends["cut"] + self.ends["silent"]


def count(outcomes: Sequence[Outcome]) -> Counts:
    """The counts of a load."""
    ends = Counter(one.end for one in outcomes)
    return Counts(
        sent=len(outcomes),
        ends={end: ends[end] for end in MEANING},
        retried=sum(one.attempts > 1 for one in outcomes),
        worst_ttft_s=max((one.ttft_s or 0.0 for one in outcomes), default=0.0),
        errors=dict(Counter(f"{one.end}: {one.error}" for one in outcomes if one.error)),
    )


def ended(answer: Answer) -> End:
    """How a request ended."""
    error = answer.error
    if error is None:
        return "whole" if answer.finished else "silent"
    if isinstance(error, APIStatusError):
        reason = error.response.headers.get("x-brimful-reason")
        return "refused" if reason in REFUSALS else "failed"
    if not answer.parts_s:
        return "failed"
    return "cut" if isinstance(error, APIConnectionError | httpx2.HTTPError) else "event"


class Load:
    """Requests at a steady rate until ``stop``.

    Attributes:
        outcomes: of those that have ended.
    """

    def __init__(self, base_url: str, model: str, per_s: float, seed: int = 0) -> None:
        self.outcomes: list[Outcome] = []
        self._model, self._per_s, self._rng = model, per_s, random.Random(seed)
        self._base_url, self._stopped = base_url, asyncio.Event()

    def stop(self) -> None:
        """Send no more."""
        self._stopped.set()

    async def run(self) -> list[Outcome]:
        """Send until ``stop``, and wait for all answers."""
        client = StockClient(self._base_url, TIMEOUT_S)
        sent: list[asyncio.Task[None]] = []
        async with client.api:
            while not self._stopped.is_set():
                sent.append(asyncio.create_task(self._one(client, str(len(sent)))))
                due_s = len(sent) / self._per_s - client.now_s()
                await asyncio.sleep(max(due_s, 0))
            await asyncio.gather(*sent)
        return self.outcomes

    async def _one(self, client: StockClient, number: str) -> None:
        at_s, answer = client.now_s(), Answer()
        stream = self._rng.random() < STREAMED
        prompt = [self._rng.randrange(3, 500) for _ in range(self._rng.randint(20, 120))]
        await client.ask(
            number,
            answer,
            model=self._model,
            prompt=prompt,
            max_tokens=self._rng.randint(*OUTPUT_TOKENS),
            stream=stream,
            extra_body={"ignore_eos": True},
        )
        ttft_s = answer.parts_s[0] - at_s if answer.parts_s else None
        said = "" if answer.error is None else _said(answer.error)
        self.outcomes.append(Outcome(at_s, ended(answer), len(answer.attempts), ttft_s, said))


def _said(error: Exception) -> str:
    if isinstance(error, APIStatusError):
        reason = error.response.headers.get("x-brimful-reason", "")
        return f"{error.status_code} {reason}".strip()
    cause = error.__cause__ or error
    return json.dumps(f"{type(cause).__name__}: {cause}"[:120])
