"""``fairbatching``: FairBatching, steps as long as the least slack of the decodes allows.

    token i is due at arrival + TTFT agreed + i x ITL;  slack = due - now
    step  <= max(min of the decodes' slack, min ITL),   T = a + b new tokens + c context tokens
    order: decodes with slack < step + min ITL, then prompts, then the other decodes

each of the three by slack, the least first, and each request as far as T stays inside the step. A
decode that is ahead of its deadlines may be left out of a step, so that a prompt gets its time.

Source: Lyu et al., "FairBatching: Fairness-Aware Batch Formation for LLM Inference", arXiv
2510.14392 (October 2025). Neither its text beyond the introduction nor code could be read. The
formulas are those that two reviews quote: themoonlight.io, "[Literature Review] FairBatching"
(deadlines, slack, a budget in time), and a reading of the paper by iStar, "FairBatching: fair batch
formation for LLM inference" of 17 May 2026, in Chinese (a and b and c, the step's bound, the three
groups and their order). What those leave open is decided here: one decode runs in any case, and an
engine without an ITL has Sarathi's step. Left out: the prefill admission budget, which tells a
router what an engine still takes.
"""

import math

import numpy as np

from benchmarks.baselines.chunks import (
    Deadlines,
    attended,
    in_order,
    most_within,
    prompts_of,
    served,
    shared_within,
    step_time,
)
from benchmarks.baselines.options import FairBatchingOptions
from benchmarks.baselines.rival import Known, Moves, Seen, Unmoved, decodes_first


class FairBatching(Unmoved):
    """Serves urgent decodes, then prompts, then decodes that are ahead."""

    def __init__(self, options: FairBatchingOptions, known: Known) -> None:
        self._urgent_itls = options.urgent_itls
        self._deadlines = Deadlines(known, options.ttft_s, gaps=options.slack == "gaps")
        self._step_s = step_time(known, options.model, options.margin)

    def decide(self, seen: Seen) -> Moves:
        running, most = seen.running, seen.engine.max_num_batched_tokens
        decodes = np.flatnonzero(running.decoding)
        itl_s = float(self._deadlines.itl_s(running)[decodes].min(initial=math.inf))
        if math.isinf(itl_s):
            return Moves(most, seen.room, decodes_first(running))
        due_s = self._deadlines.due_s(running)
        decodes = decodes[np.argsort(due_s[decodes], kind="stable")]
        slack_s, kv = due_s[decodes] - seen.now_s, np.cumsum(running.computed[decodes])
        within_s = max(float(slack_s[0]), itl_s)
        urgent = int((slack_s < within_s + self._urgent_itls * itl_s).sum())

        def fitting(count: int, prefill: int, context: float) -> int:
            """How many of the first decodes the step has time for."""
            return most_within(
                min(count, most - prefill),
                lambda n: self._step_s(n, float(kv[n - 1]), prefill, context),
                within_s,
            )

        first = fitting(urgent, 0, 0.0)
        held = float(kv[first - 1]) if first else 0.0
        waiting = seen.first_waiting(seen.waiting)
        places = np.flatnonzero(~running.decoding).tolist()
        prompts = in_order(
            prompts_of(running, due_s, places, runs=True)
            + prompts_of(waiting, self._deadlines.due_s(waiting), range(len(waiting)), runs=False)
        )
        shares = shared_within(
            prompts,
            most - first,
            seen.room,
            seen.engine.long_prompt_tokens,
            lambda n, context: self._step_s(first, held, n, context),
            within_s,
        )
        prefill = sum(shares)
        count = first
        if first == urgent:
            count = max(first, fitting(len(decodes), prefill, attended(prompts, shares)))
        count = max(count, 1)
        return served(seen, decodes[:count].tolist(), prompts, shares, count + prefill)
