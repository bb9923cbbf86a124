"""``refiner``: the budget refiner of vLLM's Ascend plugin ("dynamic batch").

    budget = max { chunk : cost(context, decodes, chunk) <= SLO }

from a table measured beforehand, of the least row that is no smaller than the mean tokens of the
decodes (prompt and output) and their number; the engine's own budget without a decode, beyond the
table, and if no chunk of a row is inside the SLO. The chunk counts all tokens of the step.
Decodes come first, prompts in the order they came.

Source: vllm-project/vllm-ascend, vllm_ascend/core/scheduler_dynamic_batch.py at 0243652a
(``BudgetRefiner``). Its table is a CSV for one accelerator; here it is the profile's step time on a
grid of the same three keys, so without an error of measurement. The keys are looked up as their
docstring says, the next one above: the code keeps them in a set, whose order is not theirs.
"""

import bisect

import numpy as np

from benchmarks.baselines.options import RefinerOptions
from benchmarks.baselines.rival import Known, Moves, Seen, Unmoved, decodes_first
from simulator.virtual.model_len import CONTEXT


def grid(step: int, most: int) -> list[int]:
    """Four multiples of ``step``, then doubled, up to the first that is at least ``most``."""
    keys = [step * k for k in range(1, 5)]
    while keys[-1] < most:
        keys.append(keys[-1] * 2)
    return keys


class Refiner(Unmoved):
    """Reads a step's budget from a table.

    Attributes:
        table: budget by context and decodes; None: no chunk is inside the SLO.
    """

    def __init__(self, options: RefinerOptions, known: Known) -> None:
        engine = known.engine
        self._contexts = grid(options.context_step, CONTEXT)
        self._decodes = grid(options.decodes_step, engine.max_num_seqs)
        self.table: dict[tuple[int, int], int | None] = {}
        slo_s = None if known.itl_s is None else known.itl_s * options.slo_frac
        if slo_s is None:  # its own switch: without an SLO it is off
            return
        chunks = range(options.chunk_step, engine.max_num_batched_tokens + 1, options.chunk_step)
        for context in self._contexts:
            for decodes in self._decodes:
                inside = bisect.bisect_right(
                    chunks, slo_s, key=lambda n: cost_s(known, context, decodes, n)
                )
                self.table[context, decodes] = chunks[inside - 1] if inside else None

    def decide(self, seen: Seen) -> Moves:
        return Moves(self._budget(seen), seen.room, decodes_first(seen.running))

    def _budget(self, seen: Seen) -> int:
        most = seen.engine.max_num_batched_tokens
        running = seen.running
        tokens = running.tokens[running.computed >= running.prompt]
        if not len(tokens) or not self.table:
            return most
        key = _above(self._contexts, float(np.mean(tokens))), _above(self._decodes, len(tokens))
        if key[0] is None or key[1] is None:
            return most
        budget = self.table[key[0], key[1]]
        return most if budget is None else budget


def _above(keys: list[int], value: float) -> int | None:
    at = bisect.bisect_left(keys, value)
    return keys[at] if at < len(keys) else None


def cost_s(known: Known, context: int, decodes: int, chunk: int) -> float:
    """Seconds of a step of ``chunk`` tokens, one for each decode with so much context."""
    prefill = max(chunk - decodes, 0)
    return known.step_s(decodes, decodes * context, prefill, prefill * prefill / 2)
