"""The fluid limit: the most requests per second whose work fits the steps, without randomness."""

import math
from collections.abc import Callable

import numpy as np

from replicas.profiles.profile import StepProfile
from simulator.workloads.requests import LengthStats

STEP_LENGTHS = 200  # tried between the shortest and the longest step
HALVINGS = 50  # to the last bits
LONGEST_STEP_S = 10.0  # without an SLA; memory is the limit long before


def fluid_limit_per_s(
    profile: StepProfile, lengths: LengthStats, itl_s: float | None, max_num_seqs: int | None = None
) -> float:
    """The highest rate q at which every step, all equal, takes T <= D.

    In a step of T seconds q T requests come and go: q T E[in] prompt tokens are computed, and
    B = q T (E[out] - 1) requests decode, over B m tokens of KV (the first token comes with the
    prompt). It fits if T(B, B m, P, X) <= T and KV memory holds q T E[out] requests. For
    T = c0 + c1 B + c2 K + c3 P this is
    q = (D - c0) / (D (c3 E[in] + (c1 + c2 m) (E[out] - 1))).

    Two things exceed it, and neither is good service: prompts that are computed while nothing
    decodes, and tokens beyond the SLA's percentile, which may wait for one long prefill.

    Args:
        itl_s: D; None: only memory and ``max_num_seqs`` limit the batch.
    """
    floor_s = profile.step_s(1, lengths.mean_held, 0, 0)
    top_s = LONGEST_STEP_S if itl_s is None else itl_s
    if top_s < floor_s:
        return 0.0
    slots = profile.kv_tokens / lengths.mean_held
    if max_num_seqs is not None:
        slots = min(slots, max_num_seqs)

    def rate_at(step_s: float) -> float:
        def fits(rate: float) -> bool:
            decodes = rate * step_s * (lengths.mean_output - 1)
            prefill = rate * step_s * lengths.mean_input
            kv, context = decodes * lengths.mean_held, prefill * lengths.mean_context
            return profile.step_s(decodes, kv, prefill, context) <= step_s

        most = slots / (step_s * lengths.mean_output)
        return highest(fits, 0.0, math.nextafter(most, math.inf))

    return max(map(rate_at, np.geomspace(floor_s, top_s, STEP_LENGTHS).tolist()))


def highest(
    fits: Callable[[float], bool], low: float, high: float, halvings: int = HALVINGS
) -> float:
    """The highest value that fits, by bisection, if ``low`` fits and ``high`` does not."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
