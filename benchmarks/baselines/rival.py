"""What a named rival sees before a step, and what it may decide. Pure: numbers in, numbers out.

A rival knows what a server knows: the requests that run and wait, when they came and had their
tokens, how long steps took, and of a step yet to come what was profiled on this card beforehand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from controller.records import EngineLimits, StepSample

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
StepTime = Callable[[float, float, float, float], float]
"""Seconds of a step by decodes, their KV tokens, prefill tokens and prefill tokens x context."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Requests, one element each, in vLLM's order.

    Args:
        ids: vLLM's.
        computed: tokens whose KV is in memory.
        prompt, generated: tokens.
        allowed: tokens that it may generate in all (``max_tokens``).
        arrival_s, first_token_s, last_token_s: on the engine's clock; NaN before there was one.
        itl_s, ttft_s: what each was promised; None: all have the SLA's.
    """

    ids: tuple[str, ...]
    computed: Ints
    prompt: Ints
    generated: Ints
    allowed: Ints
    arrival_s: Floats
    first_token_s: Floats
    last_token_s: Floats
    itl_s: Floats | None = None
    ttft_s: Floats | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, k: int) -> "Columns":
        """Only the request ``k``."""
        one = slice(k, k + 1)
        return Columns(
            self.ids[one],
            self.computed[one],
            self.prompt[one],
            self.generated[one],
            self.allowed[one],
            self.arrival_s[one],
            self.first_token_s[one],
            self.last_token_s[one],
            None if self.itl_s is None else self.itl_s[one],
            None if self.ttft_s is None else self.ttft_s[one],
        )

    @staticmethod
    def none() -> "Columns":
        """No request."""
        whole, times = np.zeros(0, np.int64), np.zeros(0)
        return Columns((), whole, whole, whole, whole, times, times, times)

    @property
    def tokens(self) -> Ints:
        """Prompt and output: what is in memory once prefill is done."""
        return self.prompt + self.generated

    @property
    def left(self) -> Ints:
        """Tokens to compute before the next one is generated: 1 of one that decodes."""
        return self.tokens - self.computed

    @property
    def decoding(self) -> Mask:
        """Who has its whole prompt computed (and what it had generated before a preemption)."""
        return (self.left <= 1) & (self.computed >= self.prompt)


@dataclass(frozen=True, slots=True)
class Seen:
    """The engine before a step.

    Args:
        waiting: how many wait.
        first_waiting: the first n of those, or as many as there are.
        kv_free_tokens: of KV memory, in whole blocks.
    """

    now_s: float
    engine: EngineLimits
    running: Columns
    waiting: int
    first_waiting: Callable[[int], Columns]
    kv_free_tokens: int

    @property
    def room(self) -> int:
        """How many may start next to the running ones, by the engine's own cap."""
        return max(min(self.engine.max_num_seqs - len(self.running), self.waiting), 0)


@dataclass(frozen=True, slots=True)
class Moves:
    """What a rival decides for one step.

    Args:
        budget: tokens of the step.
        starts: how many of the waiting requests may start.
        running: the running requests in the order of service, by their numbers; one that is left
            out keeps its memory and waits for a step; None: as they are.
        waiting: the waiting ones likewise, all of them; None: as they are.
        longest_chunk: tokens of one prompt, at most; None: as many as the step has.
    """

    budget: int
    starts: int
    running: Sequence[int] | None = None
    waiting: Sequence[int] | None = None
    longest_chunk: int | None = None


class Rival(Protocol):
    """A policy of somebody else's, one per engine."""

    def decide(self, seen: Seen) -> Moves:
        """The limits and orders of the next step."""
        ...

    def observe(self, sample: StepSample, running: int, now_s: float) -> None:
        """A step is done, with which so many requests ran."""
        ...

    def finished(self, output_tokens: int) -> None:
        """A request ended by itself."""
        ...

    def preempted(self) -> None:
        """A request lost its KV blocks."""
        ...


class Unmoved:
    """Learns nothing: a rival overrides what it needs."""

    def observe(self, sample: StepSample, running: int, now_s: float) -> None:
        """Nothing to learn."""

    def finished(self, output_tokens: int) -> None:
        """Nothing to learn."""

    def preempted(self) -> None:
        """Nothing to learn."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a rival is started with.

    Args:
        engine: what the engine was started with.
        itl_s, ttft_s: the SLA; None: none is agreed.
        step_s: step times as profiled on this card.
    """

    engine: EngineLimits
    itl_s: float | None
    ttft_s: float | None
    step_s: StepTime


def decodes_first(running: Columns) -> list[int]:
    """Those that decode before those in prefill, each in their order."""
    decoding = running.decoding
    return [*np.flatnonzero(decoding).tolist(), *np.flatnonzero(~decoding).tolist()]


def clamped(moves: Moves, seen: Seen) -> Moves:
    """The same inside the engine's own limits, and so that some request gets on.

    vLLM has no step with more tokens or requests than it was started with. With nothing running,
    at least the first of the queue may start; none is left out if that leaves none.
    """
    leaves_all = moves.running is not None and not len(moves.running) and moves.starts < 1
    running = None if leaves_all else moves.running
    least = 0 if len(seen.running) else 1
    return replace(
        moves,
        budget=min(max(moves.budget, 1), seen.engine.max_num_batched_tokens),
        starts=min(max(moves.starts, least), seen.room),
        running=running,
    )
