"""A static engine tuned as somebody would who has a week and this very workload.

vLLM's two settings that matter here, ``max_num_seqs`` (cap) and ``max_num_batched_tokens`` (chunk),
are searched apart, by the capacity they reach.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from replicas.profiles.profile import StepProfile
from simulator.workloads.requests import LengthStats

CAPS = (1.25, 1.0, 1.7, 2.5)  # times the decodes of the fluid limit's step: where to begin
STEPS = (0.12, 0.04)  # of a search's rounds, share of cap and of chunk
FINE = STEPS[-1:]

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Setting:
    """vLLM's two limits of a step; it demands ``chunk >= cap``."""

    cap: int
    chunk: int

    def of(self, policy: str) -> str:
        """A policy in an engine with these limits, as ``simulator.virtual.plan`` reads it."""
        name, _, own = policy.partition(":")
        engine = f"max_num_seqs={self.cap},max_num_batched_tokens={self.chunk}"
        return f"{name}:{own},{engine}" if own else f"{name}:{engine}"

    def scaled(self, cap: float, chunk: float) -> "Setting":
        """Both limits times a factor; a step of one token is made where rounding swallows it."""
        most = max(_scaled(self.chunk, chunk), 1)
        return Setting(min(max(_scaled(self.cap, cap), 1), most), most)


def _scaled(tokens: int, factor: float) -> int:
    scaled = round(tokens * factor)
    if scaled == tokens and factor != 1:
        return tokens + (1 if factor > 1 else -1)
    return scaled


def on_line(profile: StepProfile, lengths: LengthStats, itl_s: float, cap: int) -> Setting:
    """The chunk with which a step of ``cap`` decodes and the rest of it prompts takes D.

    For T = c0 + c1 B + c2 K + c3 P + c4 X this is c0 + c1' cap + c3' (chunk - cap) = D, with the
    costs of a token at the mean context: c1' = c1 + c2 m, c3' = c3 + c4 x. At least ``cap``.
    """

    def fits(prefill: int) -> bool:
        kv, context = cap * lengths.mean_held, prefill * lengths.mean_context
        return profile.step_s(cap, kv, prefill, context) <= itl_s

    low, high = 0, profile.max_num_batched_tokens + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Setting(cap, cap + low)


def starts(
    profile: StepProfile, lengths: LengthStats, itl_s: float, rate_per_s: float
) -> tuple[Setting, ...]:
    """Where a search begins: caps along the line, and vLLM's own cap, which does not bind.

    Args:
        rate_per_s: the fluid limit q, whose step of D has B = q D (E[out] - 1) decodes.
    """
    decodes = rate_per_s * itl_s * (lengths.mean_output - 1)
    along = [on_line(profile, lengths, itl_s, max(round(decodes * f), 1)) for f in CAPS]
    chunk = on_line(profile, lengths, itl_s, max(round(decodes), 1)).chunk
    return tuple(dict.fromkeys([*along, Setting(min(chunk, profile.max_num_seqs), chunk)]))


def around(setting: Setting, step: float) -> list[Setting]:
    """The neighbours: one limit changed, then both."""
    up, down = 1 + step, 1 / (1 + step)
    one = (up, 1.0), (down, 1.0), (1.0, up), (1.0, down)
    return [setting.scaled(*factors) for factors in (*one, *product((up, down), repeat=2))]


def climb(
    better: Callable[[Setting], bool], first: Sequence[Setting], steps: Sequence[float] = STEPS
) -> Setting:
    """``climb_by`` with the neighbours of a static setting."""
    return climb_by(around, better, first, steps)


def climb_by(
    neighbours: Callable[[S, float], Sequence[S]],
    better: Callable[[S], bool],
    first: Sequence[S],
    steps: Sequence[float] = STEPS,
) -> S:
    """The best setting found by going to a better neighbour until there is none, step by step.

    Args:
        neighbours: of a setting, a step (share) away.
        better: whether a setting is better than all that were asked for before.
        first: where to begin: the best of these.
        steps: how far neighbours are away, share; the next one is taken when none is better.
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
