"""``adaptive`` where classes differ in their time between tokens (``policies.class_chunks``)."""

from dataclasses import replace

import numpy as np

from controller.config import BatchingConfig
from controller.models.requests import Requests
from controller.policies.adaptive import ONCE, UNKNOWN_STEP_S, AdaptiveStep
from controller.policies.base import Batch, ReadBatch
from controller.policies.class_chunks import LEFT_OUT_S, Bools, ClassChunks
from controller.records import BatchLimits, EngineLimits, EngineState, Reason, StepLimits


class ClassedStep(AdaptiveStep):
    """The step half, of one engine whose requests bring their agreements along.

    What is left out of a step is looked at before all else; the rest is sized as ever, by those
    that run in it. Memory is forecast for all.
    """

    def __init__(self, config: BatchingConfig, engine: EngineLimits) -> None:
        super().__init__(config, engine)
        self._by_class = ClassChunks(config.sla.itl_s or UNKNOWN_STEP_S, config.prefill_floor)
        self._chunks = self._by_class
        self._all: Requests | None = None  # that run, whoever is left out

    def limits(self, state: EngineState, read_batch: ReadBatch, pushed: BatchLimits) -> StepLimits:
        batch = read_batch()
        self._all = running = batch.running
        self._by_class.know(batch.agreements)
        decoding = running.tokens - running.computed <= self._engine.tokens_per_decode
        out = self._left_out(state, batch, decoding)
        self._by_class.decoding(running.kinds[decoding & ~out])
        rest = batch if not out.any() else replace(batch, running=running.where(~out))
        asked = super().limits(state, lambda: rest, pushed)
        decodes = int(np.count_nonzero(decoding & ~out))
        if asked.token_budget <= decodes * self._engine.tokens_per_decode:
            out |= (
                ~decoding
            )  # a token of each prompt, for its place in the batch, would be too much
        return replace(asked, left_out=tuple(np.flatnonzero(out).tolist())) if out.any() else asked

    def _left_out(self, state: EngineState, batch: Batch, decoding: Bools) -> Bools:
        running, engine = batch.running, self._engine
        # Drafts of one that a step leaves out are stale when it is back.
        drafts = engine.tokens_per_decode > 1
        if drafts or batch.waited_s is None or not decoding.any():
            return np.zeros(len(running), dtype=bool)

        def stricter_tokens(itl_s: float) -> int:
            left = running.tokens - running.computed
            mine = int(left[~decoding & self._by_class.stricter(running, itl_s)].sum())
            if not state.waiting:
                return mine
            waiting = batch.waiting(ONCE)
            left = waiting.tokens - waiting.computed
            return mine + int(left[self._by_class.stricter(waiting, itl_s)].sum())

        out = self._by_class.left_out(running, decoding, batch.waited_s, stricter_tokens)
        out |= self._giving_way(state, batch, decoding)
        if not out.any():
            return out
        # vLLM preempts among those that it sees: where memory may overflow, it is to see all.
        blocks = int((running.computed[decoding & ~out] % engine.block_tokens == 0).sum())
        new = blocks * engine.block_tokens + engine.max_num_batched_tokens
        if state.kv_used_tokens + new > engine.kv_tokens:
            out[:] = False
        return out

    def _giving_way(self, state: EngineState, batch: Batch, decoding: Bools) -> Bools:
        """Prompts that are half computed, and let others go before them.

        Those of which the first token may come later, and the next ones may as well, than those of
        another that is half computed or the first of the queue: vLLM takes them in the order in
        which they started. Each gets a chunk once in ``LEFT_OUT_S`` all the same.
        """
        running, agreements = batch.running, batch.agreements
        prompts: Bools = ~decoding & (running.outputs == 0)
        if batch.waited_s is None or not prompts.any():
            return np.zeros(len(running), dtype=bool)
        firsts = set(running.kinds[prompts].tolist())
        if state.waiting:
            firsts.update(batch.waiting(ONCE).kinds[:1].tolist())
        later = [
            any(
                one.ttft_s > agreements[k].ttft_s and one.itl_s >= agreements[k].itl_s
                for k in firsts
            )
            for one in agreements
        ]
        way: Bools = prompts & np.array(later)[running.kinds]
        return way & (batch.waited_s() < LEFT_OUT_S) if way.any() else way

    def _fitting(
        self, state: EngineState, batch: Batch, candidates: Requests
    ) -> tuple[int, Reason | None]:
        running = batch.running if self._all is None else self._all
        fitting, _ = self._admission.fitting(
            running,
            candidates,
            state.kv_used_tokens,
            self._by_class.model,
            batch.held_elsewhere_tokens,
        )
        in_time = self._by_class.starting(running, candidates.first(fitting))
        if in_time < fitting:
            return in_time, "sla"
        return fitting, "memory" if fitting < len(candidates) else None

    def resumed(self, gap_s: float, number: int = 0) -> None:
        if self._applied:
            self._by_class.resumed(gap_s, number)
