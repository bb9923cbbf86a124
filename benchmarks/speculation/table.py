"""How many draft tokens pay at a batch size: the table that vLLM reads before every step.

A step of B sequences with k drafts each gives E(k) = 1 + a + ... + a^k tokens for each of them,
where a is the chance of a draft to be accepted after those before it, and takes

    T(B, k) = step(B, B m, B k + P, P x) + k d,    P = B E(k) p

with m tokens of KV a sequence, d seconds to draft one token for the batch, and the prompts that
come in the place of what ends: p prompt tokens for each token that is generated, x of context each.
A draft is verified as one more row of the step's matrices, like a prompt token.

Tokens/s are B E(k) / T where T is within D. Where it is not, prompts wait, and the batch shrinks
to the largest that fits: tokens/s are those there. Most tokens/s at a batch are also the shortest
time per token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Table = list[tuple[int, int, int]]  # first and last batch size, and drafts of a step

MOST_DRAFTS = 5
TINY = 1e-9  # tokens/s where no batch is within the SLA


@dataclass(frozen=True, slots=True)
class DraftedSteps:
    """An engine that speculates, and what it is asked for.

    Args:
        step_s: seconds of a step, by the features of ``controller.records.StepSample``.
        acceptance: a.
        draft_s: d.
        kv_per_decode: m.
        prompts_per_token: p.
        context: x.
        itl_s: D; None: no SLA.
    """

    step_s: Callable[[float, float, float, float], float]
    acceptance: float
    draft_s: float = 0.0
    kv_per_decode: float = 0.0
    prompts_per_token: float = 0.0
    context: float = 0.0
    itl_s: float | None = None

    def tokens(self, drafts: int) -> float:
        """E(k)."""
        return float(sum(self.acceptance**k for k in range(drafts + 1)))

    def took_s(self, batch: int, drafts: int) -> float:
        """T, seconds."""
        prompts = batch * self.tokens(drafts) * self.prompts_per_token
        rows, kv = batch * drafts + prompts, batch * self.kv_per_decode
        return self.step_s(batch, kv, rows, prompts * self.context) + drafts * self.draft_s

    def tokens_per_s(self, drafts: int, largest: int) -> Floats:
        """What batches of 1 to ``largest`` sequences generate, tokens/s, shape (largest,)."""
        tokens, batches = self.tokens(drafts), range(1, largest + 1)
        took_s = np.array([self.took_s(batch, drafts) for batch in batches])
        per_s: Floats = tokens * np.arange(1, largest + 1) / took_s
        if self.itl_s is None:
            return per_s
        if took_s[0] > self.itl_s:
            return np.zeros(largest)
        fitting = np.interp(self.itl_s, np.maximum.accumulate(took_s), batches)
        return np.where(took_s <= self.itl_s, per_s, tokens * fitting / self.itl_s)


def table(steps: DraftedSteps, largest: int, most: int = MOST_DRAFTS) -> Table:
    """vLLM's ``num_speculative_tokens_per_batch_size``: the drafts of each range of batch sizes.

    Of all tables with no more drafts at larger batches, the one with the highest mean logarithm of
    tokens/s, batch sizes being as likely as their logarithm is evenly spread. Measured step times
    have ripples, and where their prompts put a batch on them is chance.

    Args:
        largest: batch size.
        most: drafts of a step.
    """
    per_s = np.array([steps.tokens_per_s(drafts, largest) for drafts in range(most + 1)])
    worth = np.log(np.maximum(per_s, TINY)) / np.arange(1, largest + 1)
    # By dynamic programming: the best score up to a batch size that ends with so many drafts.
    score, before = worth[:, 0], []
    for column in worth.T[1:]:
        best = [max(range(k, most + 1), key=score.__getitem__) for k in range(most + 1)]
        before.append(best)
        score = column + score[best]
    chosen = [int(score.argmax())]
    for best in reversed(before):
        chosen.append(best[chosen[-1]])
    return _ranges(chosen[::-1])


def _ranges(chosen: Sequence[int]) -> Table:
    found: Table = []
    for batch, drafts in enumerate(chosen, 1):
        if found and found[-1][2] == drafts:
            found[-1] = found[-1][0], batch, drafts
        else:
            found.append((batch, batch, drafts))
    return found
