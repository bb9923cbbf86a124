"""Limits of the next step of one replica, and its measurements. No I/O, no clock of its own.

The scheduler calls it before and after every step; the channel brings limits and takes reports.
Without limits for a lease, the same policy runs here on this replica's own reports.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from operator import index

import numpy as np

from controller.config import BatchingConfig, Sla
from controller.fail_open import Guard
from controller.fleet.loop import ControlLoop
from controller.law.step_model import guess
from controller.models.arrays import Floats, Ints
from controller.models.step_time import MIN_STEPS
from controller.records import (
    YOUNG_PERIOD_S,
    YOUNG_STEPS,
    BatchLimits,
    BoundSteps,
    ClassSlo,
    EngineLimits,
    EngineReport,
    EngineState,
    Mode,
    Reserve,
    StepLimits,
    StepSample,
)
from controller.switch import Switches, is_on, merged, newest
from replicas.engine.latencies import Latencies
from replicas.engine.limiter import Limiter, Waiting, long_chunks
from replicas.engine.rate import Rate
from replicas.engine.seen_lengths import SeenLengths
from replicas.engine.shadow import Shadow
from replicas.engine.step_log import StepLog
from replicas.engine.step_sums import StepSums

PAPER = "paper"  # decides by the lengths of finished requests
STEP, LOOP = "the limits of a step", "the local control loop"  # names of what failed, for logs
LOCAL = "local"  # group and replica of an engine without a controller
EMPTY = np.zeros((0, 4))
Tables = Callable[[], tuple[Floats, Floats, Ints | None, tuple[ClassSlo, ...]]]
"""Gives the running and the first waiting requests, as ``ReplicaReport.batch_table``, the tokens
that each running request has generated, and the SLOs of the classes."""


class Governor:
    """Holds the limits, makes each step fit them, and keeps the replica's statistics.

    Args:
        config: the group's batching block.
        engine: limits that the engine was started with.
        has_controller: whether a controller is expected; without one the policy runs here.
        group: the group whose switches turn enforcement off and on while engines run
            (``controller.switch``).
        untested_since_ms: Unix time at which this untested vLLM started; limits are applied only if
            a later switch says so, infinite: never. None: this vLLM is tested.
        guard: runs the policy's code. If limiting a step fails, the last step's cap and token
            budget hold for a lease, then vLLM's own limits. If the local control loop fails, its
            last limits hold for a lease, then the configured ones. None: errors are raised.

    Raises:
        ConfigError: the configured bounds do not fit the engine.
    """

    def __init__(
        self,
        config: BatchingConfig,
        engine: EngineLimits,
        *,
        has_controller: bool,
        now_s: float,
        group: str = LOCAL,
        untested_since_ms: float | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.config, self.engine = config, engine
        self._promised = config.sla  # tokens later than this SLA are late
        self._untested_since_ms = untested_since_ms
        self._guard = Guard(now_s, fatal=True) if guard is None else guard
        self._group = group
        self._switches: Switches = ()
        config.upper_bound(engine.max_num_seqs)  # raises if the engine cannot hold it
        self.limiter = self._limiter_of(config)
        self.generation = 0
        self._left: dict[BatchingConfig, BatchLimits] = {}  # of the previous configuration
        self.log = StepLog()
        # Steps by what kept requests waiting (``BoundSteps``). "bound": a configured limit;
        # "pushed": the controller's cap.
        self._bound: dict[str, int] = dict.fromkeys(("memory", "sla", "bound", "load", "pushed"), 0)
        self._fallback = ControlLoop()
        self._fallback_due_s = now_s
        self._ever_leased = has_controller
        self._lease_until_s = now_s + config.lease_s if has_controller else now_s
        self._limits = self._as_configured()
        self._last_step = StepLimits(self._limits.max_running, engine.max_num_batched_tokens)
        self._decoding = self._in_prefill = self._seq = self._arrivals = self._for_others = 0
        self._busy_s, self._shadow = 0.0, Shadow()
        self._steps: list[tuple[StepSample, int, int | None]] = []  # not counted yet
        self._written = 0  # tokens to KV memory
        self._arrival_rate, self._busy_rate = Rate(now_s), Rate(now_s)
        self._finished = self._preemptions = 0
        self._overruled = 0  # steps with more requests running than their cap
        self._sums = StepSums()
        # Two readers, the controller and the local fallback, each with its own window.
        self._read = {True: StepSums(), False: StepSums()}
        self._seen = SeenLengths(live=config.policy != PAPER)
        self._latencies = Latencies()
        self._itl_frac = 1.0

    def _limiter_of(self, config: BatchingConfig) -> Limiter:
        sla = config.sla
        whole = self.engine.whole_chunk_tokens
        chunks = None if whole else long_chunks(sla.itl_ms, sla.ttft_ms)
        return Limiter(self.engine, config.max_running.min, chunks)

    def configure(self, config: BatchingConfig, promised: Sla | None = None) -> None:
        """Use another configuration from the next step on; measurements stay.

        Limits of the previous configuration that arrive later are not applied. If that
        configuration returns, as when a role is taken and left, its last limits hold again.

        Args:
            promised: the SLA by which tokens are late; None: that of ``config``.

        Raises:
            ConfigError: the bounds do not fit the engine; nothing was changed.
        """
        config.upper_bound(self.engine.max_num_seqs)
        self._count_steps()  # by the SLA so far
        if config != self.config:
            before = self._limits
            known = self._left.get(config)
            self._left = {self.config: before}
            self.config = config
            self.generation += 1
            first = self._as_configured() if known is None else known
            model = first.model if before.model is None else before.model
            self._limits = replace(
                first,
                model=model,
                role=before.role,
                enforce=config.enforce and self._is_on(),
                capacity_per_s=before.capacity_per_s,
            )
            speed, self.limiter = self.limiter.speed, self._limiter_of(config)
            self.limiter.speed = speed
            self.log.wanted = 0  # the next decision begins with all rows
        self._seen.live = config.policy != PAPER
        self._promised = config.sla if promised is None else promised

    def before_step(
        self,
        state: EngineState,
        now_s: float,
        waiting: Waiting = lambda n: (),
        tables: Tables = lambda: (EMPTY, EMPTY, None, ()),
    ) -> StepLimits:
        """The limits of the step about to be scheduled.

        Args:
            waiting: gives the first waiting requests; called only if the step may start some.
            tables: gives the batch; called only if the policy runs here now.
        """
        self._guard.clock_s = now_s
        if self._guard.attempt(STEP, self._limit_step, state, now_s, waiting, tables):
            return self._last_step
        if not self.enforced or self._guard.fails_for(STEP, self.config.lease_s):
            return StepLimits(self.engine.max_num_seqs, self.engine.max_num_batched_tokens)
        held = StepLimits(self._last_step.max_running, self._last_step.token_budget)
        return self._kept_safe(held, state)

    def _limit_step(
        self, state: EngineState, now_s: float, waiting: Waiting, tables: Tables
    ) -> None:
        if now_s >= self._lease_until_s and now_s >= self._fallback_due_s:
            decided = self._guard.attempt(LOOP, self._decide_locally, state, now_s, tables)
            if not decided and self._guard.fails_for(LOOP, self.config.lease_s):
                self._take(self._as_configured())  # its last cap is too old
        asked = self.limiter.limits(state, self._limits, waiting)
        reason = asked.reason or "pushed"
        self._bound[reason if reason in self._bound else "bound"] += 1  # others: as configured
        if not self._limits.enforce:
            self._shadow.computed(self._kept_safe(asked, state), state)
            asked = StepLimits(self.engine.max_num_seqs, self.engine.max_num_batched_tokens)
        self._overruled += asked.max_running < state.running
        self._last_step = self._kept_safe(asked, state)

    @property
    def enforced(self) -> bool:
        """Whether limits are applied; otherwise they are only reported.

        As configured, unless a switch turned enforcement off; a switch outlasts every lease.
        """
        return self._limits.enforce

    def _kept_safe(self, asked: StepLimits, state: EngineState) -> StepLimits:
        """Make limits safe for the engine; the only place that does.

        The cap is never below the running requests (a lower cap drains the batch and preempts
        nothing), nor above what the engine was started with. The budget has tokens for every decode
        and a block of prefill, so that neither starves, unless the policy handles prefill itself.
        (Lines 6 and 15 of the paper's algorithms.)
        """
        # What is not an integer fails here, under the guard, and not later in vLLM's code.
        running = state.running
        index(asked.max_running)
        index(asked.token_budget)
        least = max(running, int(not state.loading))  # loading requests run soon
        cap = min(max(asked.max_running, least), self.engine.max_num_seqs)
        prefill = 0 if asked.may_pause_prefill else self.engine.block_tokens
        floor = self.engine.decode_tokens(running - asked.skipped, state.drafts) + prefill
        budget = min(max(asked.token_budget, floor), self.engine.max_num_batched_tokens)
        same = (cap, budget) == (asked.max_running, asked.token_budget)
        return asked if same else replace(asked, max_running=cap, token_budget=budget)

    def scheduled(self, sample: StepSample) -> None:
        """Count what the limits would have moved of a scheduled step, if they were not applied."""
        self._shadow.scheduled(sample, self.engine)

    def cache_lost(self) -> None:
        """The prefix cache is empty: to routers, all of memory counts as written since."""
        self.wrote(self.engine.kv_tokens)

    def wrote(self, tokens: int) -> None:
        """Count tokens written to KV memory that ``after_step`` does not see."""
        self._written += tokens

    def after_step(self, sample: StepSample, prefills: int, late: int | None = None) -> None:
        """Count a step with ``prefills`` requests in prefill, unless the clock jumped in it.

        Args:
            late: tokens that were later than their class is promised; None: all have one SLA.
        """
        self._written += sample.decodes + sample.prefill_tokens
        took_s, limits = sample.duration_s, self._limits
        if not 0 <= took_s < math.inf:
            return
        if limits.model is not None:
            predicted_s, speed = limits.model.predict_s(*sample.features), self.limiter.speed
            speed.observe(took_s, predicted_s, limits.usual_speed)
        self._steps.append((sample, prefills, late))

    def _count_steps(self) -> None:
        """Update the measures of steps; done only before they are needed."""
        steps, self._steps = self._steps, []
        for one in steps:
            self._guard.attempt("a step's measures", self._count_step, *one)

    def _count_step(self, sample: StepSample, prefills: int, late: int | None) -> None:
        self._decoding, self._in_prefill = sample.decodes, prefills
        self._busy_s += sample.duration_s
        seen_s = sample.duration_s if sample.seen_s is None else sample.seen_s
        if sample.decodes:
            self._sums.add(sample, seen_s, self.engine.tokens_per_decode)
            self._latencies.gap(self._promised, seen_s, sample.decodes, late)
        self.log.add(sample)

    def arrived(self, prompt_tokens: int | None = None, *, for_another: bool = False) -> None:
        """Count a request that came in, with its prompt if that is known.

        Args:
            for_another: another engine answers the request and counts it.
        """
        self._arrivals += 1
        self._for_others += for_another
        self._seen.arrived(prompt_tokens)

    def preempted(self) -> None:
        """Count a request that lost its KV blocks."""
        self._preemptions += 1

    def resumed(self, gap_s: float, late: int | None = None) -> None:
        """Count the time between two tokens of a request that was preempted between them."""
        self._latencies.gap(self._promised, max(gap_s, 0.0), 1, late)

    def first_token(self, ttft_s: float, agreed_s: float | None = None) -> bool:
        """Count a time to first token, seconds; ``agreed_s``: the request's TTFT, else the SLA's.

        Returns:
            Whether the token was late.
        """
        sla_s = (self.config.sla.ttft_ms or math.inf) / 1000
        agreed_s = sla_s if agreed_s is None else agreed_s
        self._latencies.first_token(ttft_s, agreed_s)
        return ttft_s > agreed_s

    def finished(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> None:
        """Count a request that ran to its end, with its lengths in tokens.

        Args:
            cached_tokens: input tokens that the prefix cache held.
        """
        self._finished += 1
        self._seen.finished(input_tokens, output_tokens, cached_tokens)

    def aborted(self, output_tokens: int) -> None:
        """Count a request that was aborted after ``output_tokens``."""
        self._seen.aborted(output_tokens)

    def apply(self, limits: BatchLimits, now_s: float) -> None:
        """Apply the controller's limits for their lease, counted from now.

        If they are for another configuration (``generation``), only their switches are applied.
        """
        self._ever_leased = True
        self._count_steps()
        self._switches = merged(self._switches, limits.switches)
        if limits.generation == self.generation:
            self._take(limits)
        else:
            self._take(replace(self._limits, enforce=self.config.enforce))
        self._lease_until_s = now_s + limits.lease_s
        # If no more limits come, the local fallback begins with what was measured from here on.
        self._read[True] = self._sums.copy()

    def set_target_frac(self, itl_frac: float) -> None:
        """Hold steps to this share of the SLA, above 0 and at most 1."""
        self._itl_frac = itl_frac

    def _is_on(self) -> bool:
        if self._untested_since_ms is None:
            return is_on(self._switches, self._group)
        switch = newest(self._switches, self._group)
        return switch is not None and switch.enforce and switch.epoch_ms >= self._untested_since_ms

    def _as_configured(self) -> BatchLimits:
        """The limits of the configuration alone."""
        config, itl_s = self.config, self.config.sla.itl_s
        cap = config.upper_bound(self.engine.max_num_seqs)
        on, lease_s = config.enforce and self._is_on(), config.lease_s
        limits = BatchLimits(cap, "start", lease_s=lease_s, enforce=on, generation=self.generation)
        if config.policy != "adaptive":
            return limits
        # Without data: D is the target of a step. A preemption makes a token late, so each request
        # has memory for the tokens of a lease, one per step of D. Without D none is kept free.
        return replace(
            limits,
            target_s=itl_s,
            target_full_s=itl_s,
            model=None if itl_s is None else guess(itl_s),
            reserve=Reserve(0.0, 0.0 if itl_s is None else lease_s / itl_s),
        )

    def _take(self, limits: BatchLimits) -> None:
        on = limits.enforce and self._is_on()
        self._limits = replace(limits, enforce=on)
        self.log.wanted = limits.wanted_row

    def _decide_locally(self, state: EngineState, now_s: float, tables: Tables) -> None:
        self._count_steps()
        # The controller's period: constants of the policies are per sync.
        young = 0 < self.log.steps < YOUNG_STEPS
        self._fallback_due_s = now_s + (YOUNG_PERIOD_S if young else self.config.period_s)
        report = self.report(state, now_s, LOCAL, self._group, *tables(), local=True)
        self._take(self._fallback.exchange(report, self.config, now_s))

    def mode(self, now_s: float) -> Mode:
        """What the limits come from now."""
        if now_s < self._lease_until_s:
            return "leased"
        return "fallback" if self._ever_leased else "local"

    def report(
        self,
        state: EngineState,
        now_s: float,
        replica_id: str,
        group: str,
        batch: Floats = EMPTY,
        queue: Floats = EMPTY,
        generated: Ints | None = None,
        slos: tuple[ClassSlo, ...] = (),
        *,
        local: bool = False,
    ) -> EngineReport:
        """All that this replica knows; begins a new window of recent steps.

        Args:
            state: of the engine now; it may have been idle since its last step.
            batch, queue: as of ``ReplicaReport.batch_table``.
            generated: output tokens so far of each running request, shape (n,); None: unknown.
            local: the report is for the local fallback, which has a window of its own.
        """
        self._count_steps()
        if state.running == 0:  # without steps they would stay
            self._decoding = self._in_prefill = 0
        self._seq += 1
        recent = self._sums.since(self._read[local])
        self._read[local] = self._sums.copy()
        return EngineReport(
            replica_id=replica_id,
            group=group,
            seq=self._seq,
            engine=self.engine,
            mode=self.mode(now_s),
            reason=self._limits.reason,
            max_running=self._limits.max_running,
            token_budget=self._last_step.token_budget,
            running=state.running,
            waiting=state.waiting,
            decoding=min(self._decoding, state.running),
            prefilling=self._in_prefill + state.waiting,
            kv_used_tokens=state.kv_used_tokens,
            arrivals=self._arrivals,
            for_others=self._for_others,
            finished=self._finished,
            preemptions=self._preemptions,
            arrival_rate_per_s=self._arrival_rate.per_s(self._arrivals - self._for_others, now_s),
            recent=recent,
            lengths=self._seen.moments(generated),
            latest=self._seen.latest,
            itl=self._latencies.itl.snapshot(),
            ttft=self._latencies.ttft.snapshot(),
            overruled=self._overruled,
            own_errors=self._guard.errors,
            lengths_seen=self._seen.exposure,
            rows=self.log.packed(),
            batch=batch.astype(np.float32).tobytes(),
            queue=queue.astype(np.float32).tobytes(),
            slos=slos,
            memory=self._limits.memory,
            generation=self.generation,
            model=self._limits.model if self.log.steps >= MIN_STEPS else None,
            bound_steps=BoundSteps(**self._bound),
            capacity_per_s=self._limits.capacity_per_s,
            capacity_error_frac=self._limits.capacity_error_frac,
            prompts=self._seen.prompts,
            sla_out_of_reach=self._limits.sla_out_of_reach,
            enforced=self.enforced,
            switches=self._switches,
            late_itl=self._latencies.late_itl,
            late_ttft=self._latencies.late_ttft,
            itl_frac=self._itl_frac,
            late_anyway=self._limits.late_anyway,
            busy_s=self._busy_s,
            written_tokens=self._written,
            drafts=state.drafts,
            advised=self._shadow.advised,
            busy_frac=min(self._busy_rate.per_s(self._busy_s, now_s), 1.0),
        )
