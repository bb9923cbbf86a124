"""The result of a replay: every request, every step, every gap between two tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.workloads.lengths import Floats, Ints
from simulator.workloads.requests import Request

Gap = tuple[float, float, int]  # length, end, the request's number


@dataclass(slots=True)
class Outcome:
    """The outcome of one request.

    Args:
        refused: its input and output do not fit KV memory: a server answers 400 at once.
        tokens: number that it was sent.
        scheduled_s, first_token_s, finished_s: None if the replay ended before.
        preemptions: losses of its KV blocks.
        computed_tokens: of its prompt and output, if the replay ended before it.
    """

    request: Request
    refused: bool = False
    tokens: int = 0
    scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    preemptions: int = 0
    computed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step that computed something.

    Args:
        end_s, duration_s: its end and duration.
        decodes, prefill_tokens: what it computed.
        running, kv_used_tokens: the engine's state during it.
        cap: the limit of running requests.
        predicted_s: by the model learned from the steps before; None if not identified.
    """

    end_s: float
    duration_s: float
    decodes: int
    prefill_tokens: int
    running: int
    kv_used_tokens: int
    cap: int
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times between two deliveries of one request: length, end, and the request's number."""

    length_s: Floats
    end_s: Floats
    request: Ints


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole replay.

    Args:
        kv_tokens: size of KV memory.
        end_s: the clock when it ended.
    """

    outcomes: tuple[Outcome, ...]
    steps: tuple[Step, ...]
    gaps: Gaps
    kv_tokens: int
    end_s: float

    def column(self, name: str) -> Floats:
        """One field of all steps; NaN for None."""
        return np.array([getattr(step, name) for step in self.steps], dtype=float)


def make_gaps(gaps: Sequence[Gap]) -> Gaps:
    """From (length_s, end_s, request) of each gap."""
    length_s, end_s, request = zip(*gaps, strict=True) if gaps else ((),) * 3
    return Gaps(np.array(length_s, float), np.array(end_s, float), np.array(request, np.int64))
