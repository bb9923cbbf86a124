"""The search for a rival's best setting on one workload: a grid, then hill climbing."""

from collections.abc import Callable, Hashable, Sequence
from itertools import product
from typing import TypeVar

from benchmarks.contests.sweeps import CAP, CHUNK, Point
from replicas.profiles.profile import StepProfile
from simulator.workloads.requests import LengthStats

CAPS = (1.0, 1.5, 2.5)  # times the decodes that fit a step of D; and vLLM's default
# Times the prompt tokens that fit such a step; and vLLM's default budget.
CHUNKS = (0.3, 0.5, 0.7, 0.85, 1.0, 1.3, 2.0, 4.0)

S = TypeVar("S", bound=Hashable)


def prompt_tokens(profile: StepProfile, lengths: LengthStats, itl_s: float, decodes: int) -> int:
    """The most prompt tokens in a step of at most D with this many decodes, at the mean context."""

    def fits(prefill: int) -> bool:
        kv, context = decodes * lengths.mean_held, prefill * lengths.mean_context
        return profile.step_s(decodes, kv, prefill, context) <= itl_s

    low, high = 0, profile.max_num_batched_tokens + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def grid(
    base: str, profile: StepProfile, lengths: LengthStats, itl_s: float, rate_per_s: float
) -> tuple[Point, ...]:
    """Caps around B = q D E[out], each with budgets around a step of D with B decodes.

    ``max_num_batched_tokens`` is B plus the chunk. vLLM's defaults are among them.
    """
    decodes = max(rate_per_s * itl_s * lengths.mean_output, 1.0)
    chunk = max(prompt_tokens(profile, lengths, itl_s, round(decodes)), 1)
    most_seqs, most_tokens = profile.max_num_seqs, profile.max_num_batched_tokens
    caps = {*(round(decodes * factor) for factor in CAPS), most_seqs}
    budgets = {*(round(decodes + chunk * factor) for factor in CHUNKS), most_tokens}
    pairs = {
        (min(cap, budget, most_seqs), min(budget, most_tokens))
        for cap, budget in product(caps, budgets)
    }
    return tuple(Point(base, ((CAP, cap), (CHUNK, budget))) for cap, budget in sorted(pairs))


def climb(
    neighbours: Callable[[S, float], Sequence[S]],
    better: Callable[[S], bool],
    first: Sequence[S],
    steps: Sequence[float],
) -> S:
    """Hill climbing: go to a better neighbour until there is none, with ever smaller steps.

    Args:
        neighbours: of a setting, at a relative distance.
        better: whether a setting is better than all before it.
        first: settings to begin with; the search starts at the best of them.
        steps: relative distances; the next one is used once no neighbour is better.
    """
    best, seen = first[0], set(first)
    for setting in first:
        if better(setting):
            best = setting
    for step in steps:
        tried = list(neighbours(best, step))
        while tried:
            setting = tried.pop(0)
            if setting in seen:
                continue
            seen.add(setting)
            if better(setting):
                best, tried = setting, list(neighbours(setting, step))
    return best
