"""``adaptive`` where classes differ in their time between tokens (``policies.class_chunks``)."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from controller.models.arrays import Bools
from controller.policies.base import Batch, ReadBatch
from controller.policies.class_chunks import LONGEST_SKIP_S, ClassChunks
from controller.policies.prompts import MAX_STARTS
from controller.records import EngineLimits, EngineState, StepLimits

# For so many steps no prompt is deferred for the first of the queue, after a step in which some
# were and it did not start.
HEAD_WAITS_STEPS = 16


Sized = Callable[[EngineState, ReadBatch], StepLimits]
"""The limits of a step by those of a batch that run in it."""


class ClassSteps:
    """The steps of one engine whose requests bring their SLOs along.

    Which requests a step skips is decided first; then it is sized as ever, for those that run in
    it. Memory is forecast for all.

    Args:
        b_min: requests that may always run.
    """

    def __init__(self, chunks: ClassChunks, engine: EngineLimits, b_min: int) -> None:
        self._chunks, self._engine, self._b_min = chunks, engine, b_min
        self._head_waits = 0  # steps for which no prompt is deferred for the first of the queue
        self._head_starts = False  # in the step that was sized last, as far as is known here

    def limits(self, state: EngineState, batch: Batch, sized: Sized) -> StepLimits:
        """The limits of the next step.

        Args:
            sized: gives those of a step without the requests that it skips.
        """
        running = batch.running
        self._chunks.know(batch.slos)
        decoding = running.tokens - running.computed <= self._engine.tokens_per_decode
        if batch.deferred_in_vain and self._head_starts:  # vLLM alone knows why
            self._head_waits = HEAD_WAITS_STEPS
        self._head_starts = False
        out = self._skipped(state, batch, decoding)
        self._chunks.decoding(running.slo_ids[decoding & ~out])
        deferrable = self._deferrable(state, batch, decoding)
        hidden, rest = out if deferrable is None else out | deferrable, batch
        if hidden.any():
            rest = replace(batch, running=running.where(~hidden), whole=batch.holding)
        asked = sized(state, lambda: rest)
        decodes = int(np.count_nonzero(decoding & ~out))
        if deferrable is not None and deferrable.any():
            asked, deferred = self._deferred(asked, state, batch, decoding, decodes, deferrable)
            out = out | deferred
            asked = replace(asked, deferred=tuple(np.flatnonzero(deferred).tolist()))
        alone = self._engine.tokens_per_decode == 1 and batch.waited_s is not None
        if alone and asked.token_budget <= decodes:
            out = out | ~decoding  # a token of each prompt, for its place, would be too much
            asked = replace(asked, deferred=())
        return replace(asked, skipped=tuple(np.flatnonzero(out).tolist())) if out.any() else asked

    def _skipped(self, state: EngineState, batch: Batch, decoding: Bools) -> Bools:
        running, engine = batch.running, self._engine
        # Speculative tokens of a skipped request are stale when it is back.
        drafts = engine.tokens_per_decode > 1
        if drafts or batch.waited_s is None or not decoding.any():
            return np.zeros(len(running), dtype=bool)

        def stricter_tokens(itl_s: float | None) -> int:
            left = running.tokens - running.computed
            mine = int(left[~decoding & self._chunks.stricter(running, itl_s)].sum())
            if not state.waiting:
                return mine
            waiting = batch.waiting(MAX_STARTS)
            left = waiting.tokens - waiting.computed
            return mine + int(left[self._chunks.stricter(waiting, itl_s)].sum())

        out = self._chunks.skipped(running, decoding, batch.waited_s, stricter_tokens)
        if out.any() and not self._with_room(state, batch, decoding & ~out):
            out[:] = False
        return out

    def _with_room(self, state: EngineState, batch: Batch, decoding: Bools) -> bool:
        """Whether memory cannot overflow in the next step.

        vLLM preempts among those that it sees: else it is to see all.
        """
        engine, running = self._engine, batch.running
        blocks = int((running.computed[decoding] % engine.block_tokens == 0).sum())
        new = blocks * engine.block_tokens + engine.max_num_batched_tokens
        return state.kv_used_tokens + new <= engine.kv_tokens

    def _deferrable(self, state: EngineState, batch: Batch, decoding: Bools) -> Bools | None:
        """Half-computed prompts that may be deferred in this step; None: none.

        vLLM serves them before all that wait. A half-computed prompt may be deferred if another
        one, or the queue's first, has a shorter TTFT target and no longer ITL target. None is
        deferred longer than ``LONGEST_SKIP_S``.
        """
        running, engine = batch.running, self._engine
        prompts: Bools = ~decoding & (running.outputs == 0)
        may_skip = engine.tokens_per_decode == 1 and not engine.whole_chunk_tokens
        if batch.waited_s is None or not may_skip or not decoding.any() or not prompts.any():
            return None
        self._head_waits = max(self._head_waits - 1, 0)
        deferrable: Bools = prompts & self._later(batch, prompts)[running.slo_ids]
        if not deferrable.any() or not self._with_room(state, batch, decoding):
            return None
        return deferrable & (batch.waited_s() < LONGEST_SKIP_S)

    def _later(self, batch: Batch, prompts: Bools) -> Bools:
        """Which SLOs are looser than that of a half-computed prompt, or of the queue's first."""
        firsts = set(batch.running.slo_ids[prompts].tolist())
        if not self._head_waits:
            firsts.update(batch.waiting(MAX_STARTS).slo_ids[:1].tolist())
        sooner = [batch.slos[k] for k in firsts]
        return np.array(
            [
                any(one.ttft_s > other.ttft_s and one.itl_s >= other.itl_s for other in sooner)
                for one in batch.slos
            ]
        )

    def _deferred(
        self,
        asked: StepLimits,
        state: EngineState,
        batch: Batch,
        decoding: Bools,
        decodes: int,
        deferrable: Bools,
    ) -> tuple[StepLimits, Bools]:
        """Which of ``deferrable`` are deferred in the end, and the limits for that.

        ``asked`` is for a step without any of them. Where no other prompt gets into the step, none
        is deferred. Of the queue, only those before the first with a looser SLO start. Where they
        leave enough of the budget, the one of ``deferrable`` with the shortest TTFT takes the rest.
        """
        running, waiting = batch.running, batch.waiting(MAX_STARTS)
        later = self._later(batch, ~decoding & (running.outputs == 0))
        longest = asked.longest_chunk_tokens or asked.token_budget
        left = (running.tokens - running.computed)[~decoding & ~deferrable].clip(max=longest)
        behind = np.flatnonzero(later[waiting.slo_ids])
        ready = batch.loads.ready if batch.loads else 0
        here, decodes = state.running + ready, decodes + ready
        starts = min(
            max(asked.max_running - here, 0), int(behind[0]) if len(behind) else len(waiting)
        )
        self._head_starts = starts > 0 and asked.token_budget - decodes > int(left.sum())
        left = np.append(left, (waiting.tokens - waiting.computed)[:starts].clip(max=longest))
        rest = asked.token_budget - decodes - int(left.sum())
        if not len(left):
            # It is asked again later: this step was sized as if the prompts were not there.
            self._head_waits = HEAD_WAITS_STEPS
            return asked, np.zeros_like(deferrable)
        cap = max(here + starts, min(asked.max_running, self._b_min))
        if cap < min(asked.max_running, state.running + state.waiting):  # others are kept waiting
            asked = replace(asked, max_running=cap, reason="sla")
        indices = np.flatnonzero(deferrable)
        ttft_s = np.array([one.ttft_s for one in batch.slos])[running.slo_ids[indices]]
        soonest = int(indices[np.argmin(ttft_s)])
        model = self._chunks.history.model
        if model.c3 > 0:  # its attention reads what is computed of it
            rest = int(rest * model.c3 / (model.c3 + model.c4 * int(running.computed[soonest])))
        deferred = deferrable.copy()
        if rest >= max(int(left.max()), self._engine.block_tokens):
            deferred[soonest] = False
            longest = min(rest, longest)
            asked = replace(asked, longest_chunk_tokens=longest, longest_always=True)
        return asked, deferred
