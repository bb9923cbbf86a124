"""``prefill_first``: a step has prompts, whole and as many as fit, or decodes, never both.

Whoever waits gets its prompt computed before any decode goes on, for the least time to first token:
vLLM's scheduler before chunked prefill (v0), and Text Generation Inference's.

Source: vLLM 0.4, vllm/core/scheduler.py, ``_schedule_default``: prompts of the queue first, in
steps of their own; decodes where none can start.
"""

import numpy as np

from benchmarks.baselines.rival import Moves, Seen, Unmoved


class PrefillFirst(Unmoved):
    """Leaves the decodes out where a prompt can be computed."""

    def decide(self, seen: Seen) -> Moves:
        budget = seen.engine.max_num_batched_tokens
        prefilling = np.flatnonzero(~seen.running.decoding).tolist()
        starts = 0
        if seen.room:
            left = seen.first_waiting(seen.room).left.cumsum()
            begun = int(seen.running.left[prefilling].sum())
            fits = (left <= seen.kv_free_tokens) & (begun + left <= budget)
            starts = int(np.count_nonzero(fits))
            # One that is longer than a step is computed in several.
            alone = not prefilling and not starts and left[0] <= seen.kv_free_tokens
            starts = 1 if alone else starts
        if prefilling or starts:
            return Moves(budget, starts, prefilling)
        return Moves(budget, 0)
