"""Open-loop load by OpenAI's own client, with retries: the outcome of each request and attempt.

A request is sent when it is due, however many are unanswered.
"""

import asyncio
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import APIConnectionError, APIError, APIStatusError

from benchmarks.live.stock_client import ID, Attempt, StockClient

PREDICTED = "x-brimful-predicted-wait-ms"
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A request: its time from the start, seconds; its class; its lengths."""

    at_s: float
    name: str
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True)
class Outcome:
    """The outcome of a request; times on the run's clock, of the attempt that was served.

    Attributes:
        status: of the last attempt; None: no answer.
        broken: an error after a 200.
        unfinished: it had no end when the run was ended.
    """

    planned: Planned
    attempts: list[Attempt] = field(default_factory=list)
    status: int | None = None
    broken: bool = False
    unfinished: bool = False
    tokens: int = 0
    first_s: float | None = None
    ended_s: float = 0.0
    predicted_s: float | None = None

    @property
    def whole(self) -> bool:
        """Whether all its tokens came."""
        return self.tokens >= self.planned.output_tokens and not self.broken

    @property
    def ttft_s(self) -> float | None:
        """From the attempt that was served to its first token."""
        if self.first_s is None or not self.attempts:
            return None
        return self.first_s - self.attempts[-1].sent_s

    @property
    def itl_s(self) -> float:
        """Mean time between its tokens."""
        return (self.ended_s - (self.first_s or 0.0)) / max(self.tokens - 1, 1)

    def good(self, ttft_s: Mapping[str, float], itl_s: float) -> bool:
        """Whether it was served whole, inside its class's TTFT and the ITL."""
        took_s = self.ttft_s
        in_time = took_s is not None and took_s <= ttft_s[self.planned.name]
        return self.whole and in_time and self.itl_s <= itl_s


def plan(
    phases: Iterable[tuple[float, float]], shares: Mapping[str, float], seed: int, lengths: Any
) -> list[Planned]:
    """Poisson arrivals of these phases (requests per second, seconds), one after the other.

    Args:
        shares: of each class.
        lengths: called with the random generator; prompt and output tokens.
    """
    rng, start_s, made = random.Random(seed), 0.0, []
    for rate_per_s, length_s in phases:
        at_s = start_s + rng.expovariate(rate_per_s)
        while at_s < start_s + length_s:
            name = rng.choices(list(shares), list(shares.values()))[0]
            made.append(Planned(at_s, name, *lengths(rng)))
            at_s += rng.expovariate(rate_per_s)
        start_s += length_s
    return made


async def send(
    base_url: str, model: str, planned: Sequence[Planned], end_s: float = math.inf
) -> list[Outcome]:
    """Send each request when it is due; returns their outcomes in the same order.

    Args:
        end_s: unfinished requests are ended then.
    """
    client = StockClient(base_url, TIMEOUT_S)
    async with client.api:

        async def one(number: str, request: Planned) -> Outcome:
            await asyncio.sleep(max(request.at_s - client.now_s(), 0))
            outcome = Outcome(request, client.attempts[number])
            left_s = None if end_s == math.inf else end_s - client.now_s()
            try:
                async with asyncio.timeout(left_s):
                    await _ask(client, model, outcome, number)
            except TimeoutError:
                outcome.unfinished = True
            outcome.ended_s = client.now_s()
            return outcome

        return await asyncio.gather(*(one(str(n), p) for n, p in enumerate(planned)))


async def _ask(client: StockClient, model: str, outcome: Outcome, number: str) -> None:
    request = outcome.planned
    rng = random.Random(number)
    try:
        raw = await client.api.completions.with_raw_response.create(
            model=model,
            prompt=[rng.randrange(3, 500) for _ in range(request.prompt_tokens)],
            max_tokens=request.output_tokens,
            stream=True,
            extra_headers={ID: number},
            extra_body={"ignore_eos": True, "service_tier": request.name},
        )
        outcome.status = raw.status_code
        predicted = raw.headers.get(PREDICTED)
        outcome.predicted_s = None if predicted is None else float(predicted) / 1000
        async for chunk in raw.parse():
            if chunk.choices:
                outcome.first_s = outcome.first_s or client.now_s()
                outcome.tokens += 1
    except APIStatusError as error:
        outcome.status = error.status_code
    except APIConnectionError:
        outcome.status = None
    except APIError:  # an error event of a stream
        outcome.broken = True
