"""``hygen``: HyGen, offline requests in what a latency budget leaves beside online ones.

    T(decodes, prompts) <= budget_ms

with T a step's time as predicted. Each step serves online requests first: all decodes, then prompt
tokens in the order they came. Offline requests take what is left of the budget: decodes in the
order they started, then prompt tokens, of running ones before new ones. An offline request that
does not fit keeps its memory and waits for a step; where memory is short, offline ones are
preempted first. ``budget_ms`` is profiled: the largest with which the online SLO holds beside
offline requests. An online prompt gets a block of tokens in any case.

Source: Sun, Wang, Lai, "HyGen: Efficient LLM Serving via Elastic Online-Offline Request
Co-location", NeurIPS 2025 (arXiv 2501.14808), sections 4.1 to 4.3, from its abstract and accounts
of it and from memory; github.com/UIUC-MLSys/HyGen was not to be had. Its predictor is a linear
regression on profiled steps; here T is the profile's own, so it is never wrong. Its order of
offline requests by shared prefixes has no use here: no two prompts begin alike.
"""

import numpy as np

from benchmarks.baselines.options import HygenOptions
from benchmarks.baselines.rival import Columns, Ints, Known, Mask, Moves, Seen, Unmoved

LOOKED_AT = 64  # of those that wait


class Hygen(Unmoved):
    """Online requests as ever, offline ones by a latency budget."""

    def __init__(self, options: HygenOptions, known: Known) -> None:
        self._budget_s, self._known = options.budget_ms / 1000, known

    def decide(self, seen: Seen) -> Moves:
        running, waiting = seen.running, seen.first_waiting(LOOKED_AT)
        decoding, online = running.decoding, _online(running)
        mine = np.flatnonzero(online & decoding).tolist()
        prompts = np.flatnonzero(online & ~decoding).tolist()
        queued = int(np.argmin(np.append(_online(waiting), False)))  # online ones come first
        kv = int(running.computed[mine].sum())
        first = int(running.computed[prompts[0]]) if prompts else 0
        tokens = int(running.left[prompts].sum() + waiting.left[:queued].sum())
        room = max(self._prefill(seen, len(mine), kv, first), seen.engine.block_tokens)
        prefill, offline = min(tokens, room), np.flatnonzero(~online & decoding)
        context = prefill * first
        fits = self._fitting(len(mine), kv, running.computed[offline], prefill, context)
        served = [*mine, *offline[:fits].tolist(), *prompts]
        budget = len(mine) + fits + prefill
        if tokens:
            return Moves(max(budget, 1), queued, served)
        kv += int(running.computed[offline[:fits]].sum())
        half = np.flatnonzero(~online & ~decoding).tolist()
        first = int(running.computed[half[0]]) if half else 0
        more = self._prefill(seen, len(mine) + fits, kv, first)
        if not more and not served:
            return Moves(1, 0)
        starts = seen.room if more > int(running.left[half].sum()) else 0
        return Moves(max(budget + more, 1), starts, [*served, *(half if more else [])])

    def _fitting(self, decodes: int, kv: int, computed: Ints, prefill: int, context: int) -> int:
        """How many offline decodes the budget has room for beside online requests."""
        held = kv + np.cumsum(computed)
        low, high = 0, len(computed)
        while low < high:
            middle = (low + high + 1) // 2
            step_s = self._known.step_s(
                decodes + middle, float(held[middle - 1]), prefill, context + prefill**2 / 2
            )
            low, high = (middle, high) if step_s <= self._budget_s else (low, middle - 1)
        return low

    def _prefill(self, seen: Seen, decodes: int, kv: int, context: int) -> int:
        """Prompt tokens that the budget has room for; the first prompt has so many behind it."""
        low, high = 0, seen.engine.max_num_batched_tokens - decodes
        while low < high:
            middle = (low + high + 1) // 2
            step_s = self._known.step_s(decodes, kv, middle, middle * (context + middle / 2))
            low, high = (middle, high) if step_s <= self._budget_s else (low, middle - 1)
        return max(low, 0)


def _online(some: Columns) -> Mask:
    """Which are promised a time between tokens; all where none is known of."""
    if some.itl_s is None:
        return np.ones(len(some), dtype=bool)
    mask: Mask = np.isfinite(some.itl_s)
    return mask
