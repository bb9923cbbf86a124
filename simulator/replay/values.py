"""Types of single arguments of ``brimful replay``, for argparse."""

import math
from argparse import ArgumentTypeError
from collections.abc import Callable

from simulator.workloads.max_tokens import MaxTokens
from simulator.workloads.traffic import Rate

# Bounds that keep replays within minutes: an engine without requests still syncs twice a second.
LEAST_RATE, MOST_RATE = 1e-3, 1e6  # requests/s
MOST_PHASE_S = 1e6
MOST_COUNT = 10_000_000
MOST_DRAFTS = 64
MOST_DRAFT_MS = 1e4
MOST_SEED = 2**32 - 1


def rate(text: str) -> Rate:
    """Requests/s, or ``own``."""
    if text == "own":
        return "own"
    per_s = float(text)
    if not (LEAST_RATE <= per_s <= MOST_RATE or per_s == math.inf):
        raise ArgumentTypeError(
            f"{text} is not allowed: {LEAST_RATE:g} to {MOST_RATE:,.0f}, inf or own"
        )
    return per_s


def max_tokens(text: str) -> MaxTokens:
    """A rule, or one number."""
    match text:
        case "spread" | "exact" | "context":
            return text
    try:
        return count()(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text} is not allowed: spread, exact, context or a whole number from 1"
        ) from None


def number(least: float, most: float = math.inf) -> Callable[[str], float]:
    """A finite number from ``least`` to ``most``."""

    def number(text: str) -> float:
        value = float(text)
        if not (least <= value <= most and value < math.inf):
            to = "" if most == math.inf else f" to {most:g}"
            raise ArgumentTypeError(f"{text} is not allowed: a number from {least:g}{to}")
        return value

    return number


def count(most: int = MOST_COUNT, least: int = 1) -> Callable[[str], int]:
    """A whole number from ``least`` to ``most``."""

    def count(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise ArgumentTypeError(
                f"{text} is not allowed: a whole number from {least} to {most:,}"
            )
        return value

    return count


seed = count(MOST_SEED, 0)
share = number(0, 1)


def drafts_from(text: str) -> tuple[int, int]:
    """A batch size, and the drafts of a step from that size on."""
    try:
        begin, drafts = map(int, text.split(":"))
    except ValueError:
        begin, drafts = 0, 0
    if not (1 <= begin <= MOST_COUNT and 0 <= drafts <= MOST_DRAFTS):
        raise ArgumentTypeError(
            f"{text} is not allowed: FROM:K, whole numbers from 1 and from 0 to {MOST_DRAFTS}"
        )
    return begin, drafts
