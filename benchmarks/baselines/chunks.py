"""Prompts in an order of service: which part of each a step computes. For rivals with deadlines."""

import bisect
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.rival import Columns, Floats, Known, Moves, Seen, StepTime

StepWith = Callable[[int, float], float]
"""Seconds of a step by prefill tokens and prefill tokens x context, beside given decodes."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request that is not computed to its end.

    Args:
        key: those with a lesser one are served first.
        place: among the running or the waiting requests.
        left: tokens to compute.
        context: tokens computed.
        runs: false: it waits.
    """

    key: tuple[bool, float]
    place: int
    left: int
    context: int
    runs: bool


def prompts_of(
    some: Columns,
    due_s: Floats,
    places: Iterable[int],
    last: Collection[str] = (),
    *,
    runs: bool,
) -> list[Prompt]:
    """These of the requests, by their due times; those of ``last`` come after all others."""
    due, left, computed = due_s.tolist(), some.left.tolist(), some.computed.tolist()
    return [Prompt((some.ids[k] in last, due[k]), k, left[k], computed[k], runs) for k in places]


def in_order(prompts: Iterable[Prompt]) -> list[Prompt]:
    """By their keys; of equal ones, the running first."""
    return sorted(prompts, key=lambda p: (*p.key, not p.runs))


def most_within(most: int, takes_s: Callable[[int], float], within_s: float) -> int:
    """The largest n up to ``most`` with ``takes_s(n)`` within that; 0 if there is none."""
    return bisect.bisect_right(range(1, most + 1), within_s, key=takes_s)


def shared(prompts: list[Prompt], tokens: int, room: int, longest: int = 0) -> list[int]:
    """Prompt tokens of each, in order, while there are any and as long as it may start.

    Args:
        longest: tokens of one prompt, at most; 0: no bound.
    """
    shares = []
    for prompt in prompts:
        share = min(prompt.left, longest or prompt.left, tokens)
        if not prompt.runs:
            share = share if room else 0
            room -= bool(share)
        tokens -= share
        shares.append(share)
    return shares


def shared_within(
    prompts: list[Prompt], tokens: int, room: int, longest: int, step_s: StepWith, within_s: float
) -> list[int]:
    """The same, in a step that takes ``within_s`` at most."""

    def takes_s(n: int) -> float:
        shares = shared(prompts, n, room, longest)
        return step_s(sum(shares), attended(prompts, shares))

    return shared(prompts, most_within(tokens, takes_s, within_s), room, longest)


def attended(prompts: list[Prompt], shares: list[int]) -> float:
    """Prefill tokens x context of these parts of the prompts."""
    return sum(n * (p.context + n / 2) for p, n in zip(prompts, shares, strict=True) if n)


def served(
    seen: Seen, decodes: list[int], prompts: list[Prompt], shares: list[int], budget: int
) -> Moves:
    """The step with these decodes, and with these tokens of the prompts."""
    order = [p.place for p in prompts if not p.runs]
    part = [(p, share) for p, share in zip(prompts, shares, strict=True) if share]
    starts = sum(not p.runs for p, _ in part)
    longest = None
    if part and starts:
        last, share = part[-1]
        if last.runs and share < last.left:
            # vLLM would give it all that is left, before those that start.
            others = part[:-1]
            if share + sum(min(n, share) for _, n in others) > sum(n for _, n in others):
                longest = share
            else:
                part = others
    serve = [*decodes, *(p.place for p, _ in part if p.runs)]
    if not serve and not starts and len(seen.running):
        return Moves(budget, 0, None, order)
    return Moves(budget, starts, serve, order, longest)


def step_time(known: Known, model: str, margin: float) -> StepTime:
    """The step times that a rival goes by: ``linear`` or the profile's, times the margin."""
    predicted_s = linear_model(known) if model == "linear" else known.step_s
    return lambda *step: margin * predicted_s(*step)


def linear_model(known: Known) -> StepTime:
    """T = a + b new tokens + c context tokens, with the least relative error on the profile.

    Steps of 1, 2, 4, ... decodes with 128 to 2,048 tokens of context each, and 0, 16, 32, ...
    prompt tokens, up to the engine's limits. The context of a prompt is the mean of its tokens'.
    """
    engine = known.engine
    decodes = 2 ** np.arange(engine.max_num_seqs.bit_length())
    chunks = [0, *(16 * 2 ** np.arange(max(engine.max_num_batched_tokens // 16, 1).bit_length()))]
    steps = [
        (float(b), float(b * held), float(p), float(p * p / 2))
        for b in decodes
        for held in (128, 512, 2048)
        for p in chunks
    ]
    took_s = np.array([known.step_s(*step) for step in steps])
    features = np.array([_features(*step) for step in steps])
    (a, b, c), *_ = np.linalg.lstsq(features / took_s[:, None], np.ones(len(steps)), rcond=None)
    weights = float(a), max(float(b), 0.0), max(float(c), 0.0)

    def step_s(decodes: float, kv: float, prefill: float, context: float) -> float:
        new = _features(decodes, kv, prefill, context)
        return weights[0] + weights[1] * new[1] + weights[2] * new[2]

    return step_s


def _features(
    decodes: float, kv: float, prefill: float, context: float
) -> tuple[float, float, float]:
    return 1.0, decodes + prefill, kv + (context / prefill if prefill else 0.0)


class Deadlines:
    """When the next token of a request is due, by its class or by the SLA.

    Args:
        ttft_s: where nobody agreed on one.
        gaps: one ITL after the token before, if there was one; else token i is due at
            arrival + TTFT + i x ITL.
    """

    def __init__(self, known: Known, ttft_s: float, *, gaps: bool) -> None:
        self._itl_s = math.inf if known.itl_s is None else known.itl_s
        self._ttft_s = ttft_s if known.ttft_s is None else known.ttft_s
        self._gaps = gaps

    def itl_s(self, some: Columns) -> Floats:
        """The ITL of each, seconds; infinite: none is agreed."""
        return np.full(len(some), self._itl_s) if some.itl_s is None else some.itl_s

    def due_s(self, some: Columns) -> Floats:
        """On the engine's clock."""
        first_s = some.arrival_s + (self._ttft_s if some.ttft_s is None else some.ttft_s)
        itl_s = self.itl_s(some)
        # Not for the first token: infinity times zero is not a number.
        paced_s = np.where(some.generated, first_s + itl_s * np.maximum(some.generated, 1), first_s)
        after_s = some.last_token_s + itl_s
        return np.where(self._gaps & ~np.isnan(after_s), after_s, paced_s)
