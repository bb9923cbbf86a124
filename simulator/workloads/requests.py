"""What a replay is given: requests with their arrival and their lengths."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a workload.

    Args:
        output_tokens: how many it will generate; no policy but the clairvoyant one may know.
        max_tokens: what its client allowed; None: as much as the context has room for.
        priority: lower is served first; priorities are on where any is not 0.
        service: the class it asks for, of ``Ground.classes``; None: none.
        prefix: names of what its prompt begins with, one for each ``PREFIX_TOKENS``; prompts share
            as many of them as their names are the same.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int
    max_tokens: int | None = None
    priority: int = 0
    service: str | None = None
    prefix: tuple[str, ...] = ()


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
