"""What a replay is given: requests with their arrival and their lengths."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload.

    Args:
        output_tokens: how many it will generate; no policy may know.
        max_tokens: what its client allowed; None: as much as the context has room for.
        priority: lower is served first; priorities are on if any is not 0.
        service: the class it asks for, of ``Ground.classes``; None: none.
        prefix: names of what its prompt begins with, one for each ``PREFIX_TOKENS``; prompts share
            as many of them as their names are the same.
        conversation: prompts of one conversation begin alike, as far as the shorter one goes; None:
            it is of none.
        then: the requests that follow it in its conversation, in order. The ``arrival_s`` of each
            is counted from the end of the answer before it.
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
    """The next request of its conversation, where its answer ended then; None: it was the last."""
    if not request.then:
        return None
    first, rest = request.then[0], request.then[1:]
    return replace(first, arrival_s=ended_s + first.arrival_s, then=rest)


@dataclass(frozen=True, slots=True)
class LengthStats:
    """Means over requests: what a fluid limit needs.

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
