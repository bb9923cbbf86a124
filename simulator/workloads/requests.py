"""The requests of a replay, with arrivals and lengths."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload.

    Args:
        output_tokens: number that it will generate; no policy may know it.
        max_tokens: the client's bound; None: as much as the context allows.
        priority: lower is served first; priorities are on if any is not 0.
        service: its class, of ``Scenario.classes``; None: none.
        prefix: names of the beginning of its prompt, one for each ``PREFIX_TOKENS``; prompts share
            a prefix as far as their names are equal.
        conversation: prompts of one conversation agree as far as the shorter one goes; None: it is
            in none.
        then: the requests that follow it in its conversation, in order. Each ``arrival_s`` is
            counted from the end of the answer before.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    priority: int = 0
    service: str | None = None
    prefix: tuple[str, ...] = ()
    conversation: int | None = None
    then: tuple["Request", ...] = ()


def every(requests: Iterable[Request]) -> Iterator[Request]:
    """These requests, and all that follow them."""
    for request in requests:
        yield request
        yield from request.then


def follow_up(request: Request, ended_s: float) -> Request | None:
    """The next request of its conversation, if its answer ended at ``ended_s``; None: none."""
    if not request.then:
        return None
    first, rest = request.then[0], request.then[1:]
    return replace(first, arrival_s=ended_s + first.arrival_s, then=rest)


@dataclass(frozen=True, slots=True)
class LengthStats:
    """Means over requests, for the fluid limit.

    Args:
        mean_input, mean_output: tokens.
        mean_held: KV tokens that a decode attends to, over all decodes.
        mean_context: tokens that a prompt token attends to, over all prompt tokens.
    """

    mean_input: float
    mean_output: float
    mean_held: float
    mean_context: float


def length_stats(requests: Sequence[Request]) -> LengthStats:
    """The means of these requests (at least one)."""
    inputs = np.array([r.input_tokens for r in requests], dtype=float)
    # The first token comes with the prompt's last step.
    decodes = np.array([r.output_tokens - 1 for r in requests], dtype=float)
    attended = (decodes * (inputs + (decodes + 1) / 2)).sum()
    return LengthStats(
        float(inputs.mean()),
        float(decodes.mean()) + 1,
        float(attended / decodes.sum()) if decodes.any() else float(inputs.mean()),
        float((inputs**2).sum() / 2 / inputs.sum()),
    )
