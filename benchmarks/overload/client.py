"""Open-loop load by OpenAI's own client, with retries: the outcome of each request and attempt.

A request is sent when it is due, however many are unanswered.
"""

import asyncio
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import APIConnectionError, APIStatusError

from benchmarks.live.stock_client import Answer, Attempt, StockClient

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
        unfinished: it had no end when the run was ended.
    """

    planned: Planned
    answer: Answer = field(default_factory=Answer)
    unfinished: bool = False
    ended_s: float = 0.0

    @property
    def attempts(self) -> list[Attempt]:
        return self.answer.attempts

    @property
    def broken(self) -> bool:
        """Whether an error came after a 200."""
        error = self.answer.error
        return error is not None and not isinstance(error, APIStatusError | APIConnectionError)

    @property
    def predicted_s(self) -> float | None:
        """The wait that admission predicted; None: no prediction."""
        predicted = self.answer.headers.get(PREDICTED)
        return None if predicted is None else float(predicted) / 1000

    @property
    def whole(self) -> bool:
        """Whether all its tokens came."""
        return len(self.answer.parts_s) >= self.planned.output_tokens and not self.broken

    @property
    def ttft_s(self) -> float | None:
        """From the attempt that was served to its first token."""
        parts_s = self.answer.parts_s
        return parts_s[0] - self.attempts[-1].sent_s if parts_s else None

    @property
    def itl_s(self) -> float:
        """Mean time between its tokens."""
        parts_s = self.answer.parts_s
        return (self.ended_s - (parts_s or [0.0])[0]) / max(len(parts_s) - 1, 1)

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
            outcome = Outcome(request)
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
    await client.ask(
        number,
        outcome.answer,
        model=model,
        prompt=[rng.randrange(3, 500) for _ in range(request.prompt_tokens)],
        max_tokens=request.output_tokens,
        stream=True,
        extra_body={"ignore_eos": True, "service_tier": request.name},
    )
