"""``adaptive``, the default: memory by looking ahead, latency by sizing every step's prefill chunk.

Its part in the engine decides before every step, from the batch:

- *Memory* (``controller.models.admission``). Waiting requests start in queue order as long as the
  steps that each runs before KV memory overflows are worth more than computing it again; under an
  SLA no more are preempted than may be late (``models.preempted_share``).
- *Latency* (``policies.chunk``). The chunk of prompt tokens is what the step-time target
  (``models.step_target``) leaves beside the decodes, by an online step-time model. As the batch
  grows the room for prompts shrinks, so admission ends by itself.

Its part in the controller (``policies.adaptive_fleet``) reports the cap that this comes to on
average.
"""

import numpy as np

from controller.config import BatchingConfig
from controller.models.admission import MemoryAdmission
from controller.models.arrays import Bools, Ints
from controller.models.lookahead import Forecast, leading
from controller.models.requests import Requests
from controller.models.step_time import MIN_STEPS, StepModel
from controller.policies.base import Batch, ReadBatch, StepHalf
from controller.policies.chunk import ChunkSizer, GapChunks, StepHistory
from controller.policies.class_chunks import ClassChunks
from controller.policies.classed import ClassSteps
from controller.policies.paced import PacedChunks
from controller.policies.prompts import (
    FEW_STARTS,
    LONG_CHUNKS,
    MAX_STARTS,
    PrefillSplit,
    divided,
    long_chunks,
    taken,
    to_boundary,
)
from controller.records import (
    BatchLimits,
    EngineLimits,
    EngineState,
    Reason,
    StepLimits,
    StepSample,
)

UNKNOWN_STEP_S = 0.05  # a guess that the first steps overrule; only its proportions matter


class AdaptiveStep(StepHalf):
    """The part in one engine.

    Args:
        by_class: requests bring SLOs with times between tokens that differ. Where delivery is
            paced all go by the SLA's, and where prompts are computed for others by none.

    Raises:
        ConfigError: the configured bounds do not fit the engine.
    """

    def __init__(
        self, config: BatchingConfig, engine: EngineLimits, *, by_class: bool = False
    ) -> None:
        self._engine = engine
        self._b_max = config.upper_bound(engine.max_num_seqs)
        self._applied = config.enforce  # what limits that are not applied cause teaches nothing
        self._prefilling = True  # whether a prompt may have to be computed that does not wait
        self._b_min = config.max_running.min
        share, epsilon_is_per_gap = config.preempted_at_most, config.preempted_per_gap
        self._admission = MemoryAdmission(
            engine.kv_tokens, engine.block_tokens, share, epsilon_is_per_gap=epsilon_is_per_gap
        )
        sla, guess_s = config.sla, config.sla.itl_s or UNKNOWN_STEP_S
        by_class = by_class and sla.delivery == "gaps" and not config.prompts_alone
        self._history = StepHistory(
            guess_s,
            graph_tokens=engine.graph_tokens if by_class or sla.itl_s else 0,
            kv_read_frac=engine.kv_read_frac,
        )
        self._chunks: ChunkSizer | None = None
        self._paced: PacedChunks | None = None
        self._class_steps: ClassSteps | None = None
        if by_class:
            classes = self._chunks = ClassChunks(guess_s, self._history)
            self._class_steps = ClassSteps(classes, engine, self._b_min)
        elif sla.itl_s and sla.delivery == "paced":
            tiles = engine.tokens_per_decode == 1 and not engine.whole_chunk_tokens
            own = sla.itl_s, sla.percentile, (sla.ttft_ms or 0.0) / 1000
            self._chunks = self._paced = PacedChunks(*own, self._history, tiles=tiles)
        elif sla.itl_s:
            self._chunks = GapChunks(sla.itl_s, sla.percentile, self._history)
        whole = by_class or engine.whole_chunk_tokens
        self._long_chunks = None if whole else long_chunks(sla)

    @property
    def model(self) -> StepModel | None:
        chunks = self._chunks
        return chunks.reported if chunks and self._history.steps >= MIN_STEPS else None

    @property
    def late_anyway(self) -> float | None:
        target = self._chunks and self._chunks.target
        return target.late_anyway if target else None

    def receive(self, pushed: BatchLimits) -> None:
        self._applied = pushed.enforce
        self._prefilling = True  # another policy's part may have started one meanwhile
        self._admission.lengths.receive(pushed.outputs)
        self._history.receive(pushed.model)

    def observe(self, sample: StepSample) -> None:
        self._admission.stepped()
        if self._chunks:
            self._chunks.observe(sample, applied=self._applied)
        else:
            self._history.observe(sample)

    def finished(self, output_tokens: int) -> None:
        self._admission.finished(output_tokens, applied=self._applied)

    def aborted(self, output_tokens: int) -> None:
        self._admission.lengths.aborted(output_tokens)

    def preempted(self) -> None:
        if self._applied:
            self._admission.preempted()

    def resumed(self, gap_s: float, slo_id: int = 0) -> None:
        if self._chunks and self._applied:
            self._chunks.resumed(gap_s, slo_id)

    def set_target_frac(self, itl_frac: float) -> None:
        if self._chunks:
            self._chunks.set_target_frac(itl_frac)

    def limits(self, state: EngineState, read_batch: ReadBatch, pushed: BatchLimits) -> StepLimits:
        if self._class_steps is not None:
            return self._class_steps.limits(state, read_batch(), self._sized)
        return self._sized(state, read_batch)

    def _sized(self, state: EngineState, read_batch: ReadBatch) -> StepLimits:
        most = self._engine.max_num_batched_tokens
        to_compute = bool(state.waiting) or (self._prefilling and self._chunks is not None)
        if not to_compute or not (state.running or state.waiting):
            self._prefilling = False
            return StepLimits(self._b_max, most, reason="load")
        if self._chunks is None and self._fits_whatever_comes(state):
            return StepLimits(self._b_max, most, reason="load")
        self._prefilling = True  # where what follows fails, a prompt may have been let in
        batch, state = read_batch().with_loads(state)
        running = batch.running
        left = running.tokens - running.computed
        prefilling = left > self._engine.tokens_per_decode
        prompts = left[prefilling]
        self._prefilling = bool(state.waiting) or len(prompts) > 0
        decodes = len(running) - len(prompts)
        for_decodes = self._engine.decode_tokens(decodes, state.drafts)
        chunk = self._chunk(batch, prefilling, prompts, most - for_decodes, state.waiting)
        one = int(batch.to_load > 0)  # vLLM begins no load without a token that is left
        chunk = max(chunk - one, 0)
        division = divided(prompts, chunk, self._engine, self._long_chunks)
        admitted, reason = self._admitted(
            state, batch, division, sla_binds=chunk < most - for_decodes
        )
        here = state.running + batch.loading
        if state.waiting and reason != "load" and here + admitted < self._b_min:
            admitted, reason = self._b_min - here, "bound"
        of_one = division.most
        if division.shares:
            newcomers = batch.waiting(min(admitted, FEW_STARTS) if state.waiting else 0)
            of_one = division.of_one(newcomers)
        return StepLimits(
            state.running + admitted,
            min(for_decodes + chunk + one, most),
            may_pause_prefill=decodes > 0,
            reason=reason,
            longest_chunk_tokens=of_one,
            longest_always=self._long_chunks is not None and of_one < chunk + one,
            decodes_first=self._chunks is not None,
            loading=batch.loading,
        )

    def _fits_whatever_comes(self, state: EngineState) -> bool:
        """Whether nothing can bind, were each request as long as any may be.

        Then requests need not be looked at one by one, which takes longer than all the rest.
        """
        engine, here = self._engine, state.running + state.waiting
        if engine.max_model_len is None or engine.long_prompt_tokens:
            return False
        most = here * (engine.max_model_len + engine.block_tokens)
        memory_holds = state.kv_used_tokens + most <= engine.kv_tokens
        return memory_holds and here <= self._b_max

    def _chunk(self, batch: Batch, prefilling: Bools, prompts: Ints, most: int, queued: int) -> int:
        """Prompt tokens of the step, of which ``prompts`` are what those in prefill have left."""
        running = batch.running
        decodes = len(running) - len(prompts)
        if self._chunks is None or not decodes:
            return most
        kv, first = int(np.add.reduce(running.computed)), 0
        if len(prompts):
            computed: list[int] = running.computed[prefilling].tolist()
            kv, first = kv - sum(computed), computed[0]
            if self._long_chunks:  # so many have a part of the chunk at most
                few = computed[:LONG_CHUNKS]
                first = max(first, sum(few) // len(few))
        whole = self._engine.whole_chunk_tokens
        least = to_boundary(batch, prefilling, whole) if whole else self._engine.block_tokens
        self._history.demand.see(queued)
        if self._paced and batch.slack is not None:
            self._paced.look(batch.slack, self._admission.remaining)
        chunk = self._chunks.chunk(decodes, kv, first, least=least, most=most)
        if decodes < self._b_min:  # as B_min asks for more, a prompt gets on in every step
            chunk = max(chunk, min(least, most))
        return 0 if whole and chunk < least else chunk

    def _admitted(
        self, state: EngineState, batch: Batch, division: PrefillSplit, *, sla_binds: bool
    ) -> tuple[int, Reason]:
        """How many may start beside those in prefill, and what keeps the next one waiting."""
        free = self._b_max - state.running - batch.loading
        asked = FEW_STARTS if division.shares else MAX_STARTS
        slots = min(free, asked)
        if not state.waiting:
            return max(slots, 0), "load"
        if slots <= 0:
            return 0, "bound"
        by_chunk: Reason = "sla" if sla_binds else "bound"
        full = taken(division.prompts, division.share) >= division.chunk
        if full and not batch.to_load:
            return 0, by_chunk
        queue = batch.waiting(min(slots, batch.to_load) if full else slots)
        candidates = queue if full else division.starting(queue)
        while len(candidates) == asked < free and not (
            full or division.shares
        ):  # short: more of them begin
            asked *= 2
            candidates = division.starting(queue := batch.waiting(min(asked, free)))
        if division.shares:  # side by side they would compute one prefix several times
            candidates = candidates.first(batch.before_prefix_wait(len(candidates)))
        if not len(queue):  # vLLM keeps those that wait in places of its own, too
            return slots, "load"
        if not len(candidates):
            return 0, by_chunk
        admitted, stopped = self._fitting(state, batch, candidates, queue.outputs)
        return admitted, stopped or ("load" if admitted >= state.waiting else by_chunk)

    def _fitting(
        self, state: EngineState, batch: Batch, candidates: Requests, waiting: Ints
    ) -> tuple[int, Reason | None]:
        """How many of the candidates fit, and what stopped the next one; None: nothing did."""
        running, n = batch.holding, len(candidates)
        used, not_running = state.kv_used_tokens, batch.not_running_tokens
        fitting, together = self._admission.fitting(
            running, candidates, used, self._history.model, not_running, waiting
        )
        if fitting < n:
            fitting = max(fitting, self._outranking(state, batch, running, candidates))
        if self._chunks is not None:

            def forecast(some: Requests) -> Forecast:
                return self._admission.forecast(running, some, used, not_running)

            most_kv = self._admission.most_tokens
            in_time = self._chunks.starting(running, candidates, most_kv, together, forecast)
            if in_time < fitting:
                return in_time, "sla"
        return fitting, "memory" if fitting < n else None

    def _outranking(
        self, state: EngineState, batch: Batch, running: Requests, candidates: Requests
    ) -> int:
        """How many of the candidates start as less important ones are preempted before them.

        There has to be room for them now: vLLM preempts nobody for one that waits.
        """
        if batch.priorities is None or not len(running):
            return 0
        used, model = state.kv_used_tokens, self._history.model
        of_running, of_waiting = batch.priorities(len(candidates))
        first = candidates.first(leading(of_waiting == of_waiting[0]))
        less = np.zeros(len(running), dtype=bool)  # nobody is preempted before it has started
        less[: len(of_running)] = of_running > of_waiting[0]
        if not less.any():
            return 0
        now = used + first.tokens.cumsum() + self._engine.block_tokens
        first = first.first(leading(now <= self._engine.kv_tokens))
        if not len(first):
            return 0
        used -= min(int(running.computed[less].sum()), used)
        not_running = batch.not_running_tokens
        return self._admission.fitting(running.where(~less), first, used, model, not_running)[0]
