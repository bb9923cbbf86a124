"""``max_tokens`` as clients send it: above the output length, which no client knows."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from simulator.workloads.requests import Request

MaxTokens = int | Literal["spread", "exact", "context"]
"""A rule for requests without ``max_tokens``.

``spread``: one of ``SENT`` above the output length, each equally likely; beyond all of them the
next power of two. A number: that number, or the next power of two above a longer output. ``exact``:
the output length itself, which tells every policy the answer. ``context``: none is sent, and the
server allows what fits ``max_model_len``.
"""

SPREAD: MaxTokens = "spread"
SENT = (256, 512, 1024, 2048, 4096)  # common values of clients and client libraries


def stated(rule: MaxTokens) -> str:
    """The rule in a sentence, for the text of a table."""
    what = {
        "spread": f"a power of two from {SENT[0]} to {SENT[-1]} above its output, at random",
        "exact": "its exact output, which tells every policy the answer",
        "context": "not sent: as much as fits `max_model_len`",
    }
    allowed = f"{rule}, more for a longer output" if isinstance(rule, int) else what[rule]
    return f"`max_tokens` of each request, for every policy alike: {allowed}."


def with_max_tokens(requests: Iterable[Request], rule: MaxTokens, seed: int) -> tuple[Request, ...]:
    """The requests with ``max_tokens``; a request that has it keeps it.

    Args:
        seed: of a separate stream: lengths and arrivals with this seed do not change.
    """
    given = tuple(requests)
    # A sibling of the two streams of simulator.workloads.traffic.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    uniform = rng.random(len(given)).tolist()
    return tuple(
        replace(
            _allowing(r, rule, u),
            then=tuple(_allowing(one, rule, rng.random()) for one in r.then),
        )
        for r, u in zip(given, uniform, strict=True)
    )


def _allowing(request: Request, rule: MaxTokens, u: float) -> Request:
    if request.max_tokens is not None:
        return request
    return replace(request, max_tokens=_allowed(request.output_tokens, rule, u))


def _allowed(output_tokens: int, rule: MaxTokens, u: float) -> int | None:
    if rule == "context":
        return None
    if rule == "exact":
        return output_tokens
    if rule == "spread":
        choices: Sequence[int] = [sent for sent in SENT if sent > output_tokens]
        return choices[int(u * len(choices))] if choices else _power_above(output_tokens)
    return rule if output_tokens <= rule else _power_above(output_tokens)


def _power_above(tokens: int) -> int:
    return 1 << tokens.bit_length()
