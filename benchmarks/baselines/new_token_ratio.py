"""``new_token_ratio``: SGLang's reservation of a share of what requests may generate.

    free - sum over running of (r x min(max_tokens - generated, 4096) + prompt left)
         > prompt + min(max_tokens - generated, 4096) + a block        of the one that starts

A request that starts takes that from the free tokens in this step; from the next step on it counts
as a running one. r falls from 0.7 to 0.098 (0.14 x 0.7) over 600 steps; it is 0.7 again if
nothing runs, and after a retraction (a preemption here)

    r = min(1, (sum of generated + 20 n) / (sum of max_tokens + 1))    over the n that decode.

Requests with the least output are retracted first, of those the longest prompts: they are last in
the running list, where vLLM preempts. The budget is the engine's own, decodes first.

Source: sgl-project/sglang, python/sglang/srt/managers/schedule_policy.py (``PrefillAdder``) at
00550cd1, schedule_batch.py (``retract_decode``), scheduler.py, environ.py. Left out: prompts in
steps of their own (vLLM has mixed ones), and that a retraction frees 20 steps at once (vLLM
preempts one request at a time). The rest of a running prompt is counted here, and not there.
"""

import numpy as np

from benchmarks.baselines.options import NewTokenRatioOptions
from benchmarks.baselines.rival import Columns, Ints, Moves, Seen, Unmoved


class NewTokenRatio(Unmoved):
    """Starts requests while the reservation leaves free memory.

    Attributes:
        ratio: r, of the next step.
    """

    def __init__(self, options: NewTokenRatioOptions) -> None:
        self._options = options
        self._least = options.first * options.least_frac
        self._decay = (options.first - self._least) / options.decay_steps
        self._retracted = False
        self.ratio = options.first

    def preempted(self) -> None:
        self._retracted = True

    def decide(self, seen: Seen) -> Moves:
        self._age(seen.running)
        running = seen.running
        starts = self._starts(seen) if seen.room else 0
        return Moves(seen.engine.max_num_batched_tokens, starts, by_retraction(running))

    def _age(self, running: Columns) -> None:
        options = self._options
        if not len(running):
            self.ratio = options.first
        elif self._retracted:
            decoding = running.decoding
            generated = int(running.generated[decoding].sum())
            allowed = int(running.allowed[decoding].sum())
            ahead = options.retract_steps * int(decoding.sum())
            self.ratio = min(1.0, (generated + ahead) / (allowed + 1))
        else:
            self.ratio = max(self.ratio - self._decay, self._least)
        self._retracted = False

    def _new_tokens(self, some: Columns) -> Ints:
        left = np.maximum(some.allowed - some.generated, 0)
        return np.minimum(left, self._options.most_new_tokens)

    def _starts(self, seen: Seen) -> int:
        running = seen.running
        free = float(seen.kv_free_tokens)
        free -= self.ratio * float(self._new_tokens(running).sum())
        free -= float(running.left[~running.decoding].sum())
        share = 1.0 if self._options.newcomers == "whole" else self.ratio
        waiting, starts = Columns.none(), 0
        while starts < seen.room:
            if starts == len(waiting):
                waiting = seen.first_waiting(min(2 * starts + 4, seen.room))
            one = waiting.part(starts)
            free -= float(one.left[0]) + share * float(self._new_tokens(one)[0])
            free -= seen.engine.block_tokens
            if free <= 0:
                break
            starts += 1
        return starts


def by_retraction(running: Columns) -> list[int]:
    """Decodes by output, most first, of those the shorter prompts first; then those in prefill."""
    decoding = running.decoding
    order = np.lexsort((running.prompt, -running.generated))
    places: list[int] = order[decoding[order]].tolist()
    return [*places, *np.flatnonzero(~decoding).tolist()]
