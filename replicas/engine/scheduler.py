"""vLLM's scheduler with a cap and a token budget that move (docs/standalone.md)."""

import logging
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from controller.config import BatchingConfig, Sla, parse_batching
from controller.fail_open import Guard
from controller.models.arrays import Floats, Ints
from controller.records import (
    BatchLimits,
    ClassSlo,
    EngineLimits,
    EngineState,
    from_wire,
    to_wire,
)
from controller.request_slo import differ, of_sla
from replicas.engine import channel
from replicas.engine.autoscaled import Autoscaled
from replicas.engine.batch_counts import BatchCounts, as_they_stood, decodes_first
from replicas.engine.batch_reader import BatchReader
from replicas.engine.by_class import ByClass
from replicas.engine.engine_options import cap_name, check_options, graph_tokens, larger_batch
from replicas.engine.governor import LOCAL, Governor
from replicas.engine.hooks import take_back
from replicas.engine.intervals import Intervals, Scheduled, taken
from replicas.engine.kv_holders import kv_read_frac, kv_token_bytes, kv_tokens
from replicas.engine.live_role import LiveRole
from replicas.engine.loads_first import LoadsFirst
from replicas.engine.lost_sessions import LostSessions, waiting_requests
from replicas.engine.moved import MARK, generated, put_first, resume
from replicas.engine.prompt_chunks import PromptChunks
from replicas.engine.queue_order import Demotions
from replicas.engine.request_facts import RAN_TO_ITS_END, came_s, ran_to_its_end
from replicas.engine.settings import parse_settings
from replicas.engine.start_order import prompt_backlog
from replicas.engine.vllm_queues import all_waiting
from replicas.engine.waiting_queues import order_waiting, step_aside
from replicas.profiles.profile_file import load_profile
from replicas.workarounds import cpu_workers
from replicas.workarounds.grammar_faults import GrammarFaults
from replicas.workarounds.vllm_versions import installed_doubt

logger = logging.getLogger("vllm.brimful")  # vLLM's own handler shows it
SET = "setting the limits of a step"  # names what failed, for logs; the Governor has its own


class DynamicBatchScheduler(LoadsFirst, LostSessions, GrammarFaults):
    """Calls a Governor before every step and after every output.

    Raises:
        ConfigError: ``additional_config.brimful`` is wrong, or does not fit the engine.
    """

    max_num_scheduled_tokens: int  # vLLM reads it at each step
    fails_open = True  # False in a replay, which ends with its first error

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.scheduler_config.async_scheduling:
            # One class serves both modes. AsyncScheduler lets a request run ahead of its own
            # tokens, which a synchronous pipeline of several stages does not allow.
            take_back(self, AsyncScheduler)
        settings = parse_settings(self.vllm_config.additional_config)
        check_options(settings.checked, self, has_controller=settings.leased)
        trusted = settings.enforce == "on" or installed_doubt() is None
        self._cap_name, self.reports_grammar_errors = cap_name(self), settings.leased
        self._block_pool = self.kv_cache_manager.block_pool
        self._kv_blocks = self._block_pool.num_gpu_blocks - 1  # one is vLLM's own null block
        self._chunks = PromptChunks(self)
        self._classes = ByClass(
            of_sla(settings.batching.sla),
            on=differ(settings.live.classes),
            may_skip=not (self.num_spec_tokens or self.lora_config),
        )
        self._reader = BatchReader(self)
        self._counts = BatchCounts()
        self.guard = Guard(self.now_s(), fatal=not self.fails_open)
        self.governor = Governor(
            settings.batching,
            EngineLimits(
                max_num_seqs=getattr(self, self._cap_name),
                max_num_batched_tokens=self.max_num_scheduled_tokens,
                kv_tokens=kv_tokens(self),
                block_tokens=self.block_size,
                tokens_per_decode=1 + self.num_spec_tokens,
                long_prompt_tokens=self._chunks.threshold,
                whole_chunk_tokens=self._chunks.whole,
                max_model_len=self.max_model_len,
                graph_tokens=graph_tokens(self.vllm_config),
                kv_token_bytes=kv_token_bytes(self),
                kv_read_frac=self.kv_read_frac(),
                by_priority=self.policy.value == "priority",
            ),
            has_controller=settings.leased,
            now_s=self.now_s(),
            group=settings.group or LOCAL,
            untested_since_ms=None if trusted else self.wall_s() * 1000,
            guard=self.guard,
        )
        if not settings.leased and (hint := larger_batch(self.governor.engine)) is not None:
            logger.info("%s", hint)
        self._scheduled: deque[Scheduled] = deque()  # steps whose output is not back
        self._intervals = Intervals(graph_tokens(self.vllm_config))
        self._last_output_s = 0.0
        self._was_busy = self._resetting = False
        self._order: list[Request] | None = None  # of running requests, while moved
        self._skipped: set[Request] = set()  # decodes that vLLM does not see in this step
        self._aside = self._step_aside(None, settings.batching)
        self._awaits_first_token: dict[str, float] = {}  # id: wall clock of its arrival
        self._lost: dict[str, tuple[float, int]] = {}  # preempted: time of the last token, tokens
        self._cached: dict[str, int] = {}  # prefix cache hits of prompts, tokens
        self._role = LiveRole(settings.batching)
        self._autoscaled = Autoscaled(self.now_s())

    def now_s(self) -> float:
        """The engine's clock; a replay in virtual time has its own."""
        return time.monotonic()

    def kv_read_frac(self) -> float:
        """As in ``EngineLimits``; from the profile if the accelerator is emulated."""
        emulate = parse_settings(self.vllm_config.additional_config).emulate
        if emulate:
            return load_profile(emulate.profile).kv_read_frac
        return kv_read_frac(self.vllm_config, kv_token_bytes(self))

    def wall_s(self) -> float:
        """The clock of ``Request.arrival_time``, which the frontend process sets."""
        return time.time()

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        if not self.guard.attempt(SET, self._set_limits) and self._fails_for_long():
            engine = self.governor.engine
            setattr(self, self._cap_name, engine.max_num_seqs)
            self.max_num_scheduled_tokens = engine.max_num_batched_tokens
            self._chunks.limit(None)
        scheduled = super().schedule(*args, **kwargs)
        self.guard.attempt("a step that is scheduled", self._note_scheduled, scheduled)
        return scheduled

    def _fails_for_long(self) -> bool:
        self.guard.clock_s = self.now_s()
        return self.guard.fails_for(SET, self.governor.config.lease_s)

    def _note_scheduled(self, scheduled: SchedulerOutput) -> None:
        before, self._order = self._order, None
        skipped, self._skipped = self._skipped, set()
        self.running.extend(skipped)
        as_they_stood(self.running, before)
        if skipped:  # the cap may hold longer, if the next limits fail
            cap = max(getattr(self, self._cap_name), len(self.running))
            setattr(self, self._cap_name, cap)
        known = Scheduled.of(scheduled, self.now_s())
        self._scheduled.append(known)
        self._counts.scheduled(known, self.requests, skipped)
        if self._classes.on:
            ids = [*scheduled.num_scheduled_tokens, *(r.request_id for r in skipped)]
            self._classes.scheduled(ids, self._counts.prefilling)
        if self._reader.prefixes.only or self.connector is not None:
            self._note_found(scheduled)
        if not self.governor.enforced:
            self.governor.scheduled(known.sample)

    def _note_found(self, scheduled: SchedulerOutput) -> None:
        for new in scheduled.scheduled_new_reqs:
            if self._reader.prefixes.only:
                self._cached.setdefault(new.req_id, new.num_computed_tokens)
            elif stats := self.requests[new.req_id].prefill_stats:
                self.governor.wrote(stats.num_external_cached_tokens)

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self.guard.attempt("what a step took", self._measure, scheduler_output)
        if scheduler_output.scheduled_spec_decode_tokens:
            self.guard.attempt("accepted drafts", self._note_accepted, scheduler_output, outputs)
        return outputs

    def _note_accepted(self, done: SchedulerOutput, told: dict[int, EngineCoreOutputs]) -> None:
        drafted = done.scheduled_spec_decode_tokens
        came = (one for each in told.values() for one in each.outputs if one.request_id in drafted)
        self.governor.wrote(sum(max(len(one.new_token_ids) - 1, 0) for one in came))

    def set_pause_state(self, pause_state: Any) -> None:
        super().set_pause_state(pause_state)
        self._was_busy = False  # no steps while paused

    def add_request(self, request: Request) -> None:
        if request.request_id not in self.requests:  # else: more input of a session
            self.guard.attempt("a request that arrived", self._note_arrival, request)
        if MARK not in request.request_id:
            super().add_request(request)
            return
        if self.guard.attempt("a request that moved", resume, self, request):
            super().add_request(request)  # else its replica gives up: no answer is a wrong one
            self.guard.attempt("a request that moved", put_first, self, request)

    def _note_arrival(self, request: Request) -> None:
        for_another = self._role.for_another(request)
        # A moved request got its first token from another engine.
        if not (for_another or generated(request.request_id)):
            self._awaits_first_token[request.request_id] = came_s(request)
        self._autoscaled.come(request, for_another=for_another)
        self._classes.come(request)
        self.governor.arrived(request.num_prompt_tokens, for_another=for_another)

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.guard.attempt("a preemption", self._note_preempted, request)
        super()._preempt_request(request, *args, **kwargs)

    def _note_preempted(self, request: Request) -> None:
        self._counts.leave(request)
        if not self._resetting:
            if request.num_output_tokens:  # of one preempted twice, the token before both
                before = self._last_output_s, request.num_output_tokens
                self._lost.setdefault(request.request_id, before)
            self.governor.preempted()

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        self._resetting = True  # it may preempt all, for new weights: memory was not short
        try:
            lost = super().reset_prefix_cache(*args, **kwargs)
        finally:
            self._resetting = False
        if lost:
            self.governor.cache_lost()
        return lost

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.guard.attempt("the end of a request", self._note_end, request)
        return super()._free_request(request, *args, **kwargs)

    def _note_end(self, request: Request) -> None:
        req_id = request.request_id
        self._counts.leave(request)
        self._classes.gone(req_id)
        if request.status not in RAN_TO_ITS_END:  # else its last token is yet to be measured
            self._lost.pop(req_id, None)
        if ran_to_its_end(request):
            prompt, output = request.num_prompt_tokens, request.num_output_tokens
            cached = self._cached.pop(req_id, 0)
            self.governor.finished(prompt, output, cached)
            self._autoscaled.finished(request, cached)
            if req_id not in self._awaits_first_token:
                self._autoscaled.gone(req_id)
        else:
            self._cached.pop(req_id, None)
            self._awaits_first_token.pop(req_id, None)
            self._autoscaled.gone(req_id)
            self.governor.aborted(request.num_output_tokens)

    def _update_request_as_session(self, session: Request, *args: Any, **kwargs: Any) -> None:
        self.guard.attempt("an input of a session", self._note_input, session)
        idle = session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        super()._update_request_as_session(session, *args, **kwargs)
        came_s = session.arrival_time if idle else self.wall_s()  # early input: from its turn on
        self._awaits_first_token[session.request_id] = came_s

    def _note_input(self, session: Request) -> None:
        self._counts.leave(session)  # it comes back with a longer prompt
        self._note_first_tokens([session.request_id])  # its first token may have been its last

    def exchange(self, limits: Any, replica_id: str, group: str, itl_frac: float = 1.0) -> Any:
        """Apply the controller's limits, if any, and return the next report (wire form)."""
        now_s = self.now_s()
        self.governor.set_target_frac(itl_frac)
        if limits is not None:
            self.governor.apply(from_wire(BatchLimits, limits), now_s)
            self._role.wanted = limits.get("role")
        self._settle_role()
        report = self.governor.report(self.state(), now_s, replica_id, group, *self._tables())
        load = self._autoscaled.load(self.running, all_waiting(self), now_s)
        return (
            to_wire(report)
            | prompt_backlog(self, self._reader.found)
            | {"role": self._role.held, "autoscaled": load and to_wire(load)}
        )

    def configure(self, batching: dict[str, Any]) -> None:
        """Use another batching block from the next step on (``Governor.configure``)."""
        check_options(config := parse_batching(batching), self, has_controller=True)
        self._go_by(config, config.sla)  # raises if the engine cannot hold it
        self._role.batching = config
        self._settle_role()

    def _settle_role(self) -> None:
        running, waiting = len(self.running), all_waiting(self)
        config = self._role.settle(self.requests.values(), running, waiting)
        if config != self.governor.config:
            self._go_by(config, self._role.batching.sla)

    def _go_by(self, config: BatchingConfig, promised: Sla) -> None:
        self.governor.configure(config, promised)
        self._aside = self._step_aside(self._aside, config)

    def _step_aside(self, aside: Demotions | None, config: BatchingConfig) -> Demotions | None:
        cached = self._reader.prefixes.cached_tokens
        return step_aside(self, aside, config, self._classes.ttft_of, cached)

    def state(self) -> EngineState:
        """What the engine holds now."""
        held = self._in_tokens(self._used_blocks())
        drafts = None
        if self.num_spec_tokens:  # vLLM may draft fewer by a table, or find none
            drafts = sum([len(r.spec_token_ids) for r in self.running])
        counts = self._counts
        prompts = counts.prompts()
        decodes = max(len(self.running) - len(prompts), 0)
        loading, ready, to_load = self._reader.loads(self.running)
        return EngineState(
            len(self.running),
            waiting_requests(self),
            held,
            drafts,
            decodes,
            counts.kv_tokens,
            prompts,
            loading,
            to_load,
            self._classes.decodes,
            ready,
            self._reader.outranks,
            self._classes.itl_s,
            self._classes.loose,
            self._classes.on and self._classes.hurried(counts.prefilling),
        )

    def _in_tokens(self, blocks: int) -> int:
        return blocks * self.governor.engine.kv_tokens // max(self._kv_blocks, 1)

    def _used_blocks(self) -> int:
        return self._kv_blocks - self._block_pool.get_num_free_blocks()

    def _tables(self) -> tuple[Floats, Floats, Ints, tuple[ClassSlo, ...]]:
        return *self._reader.tables(self.running), self._classes.slos

    def _waiting(self, n: int) -> Iterable[tuple[int, int]]:
        return self._reader.first_waiting(n, self._counts.prefilling)

    def _set_limits(self) -> None:
        if self._aside:
            order_waiting(self, self._aside, demote=self.governor.enforced)
        state = self.state()
        limits = self.governor.before_step(state, self.now_s(), self._waiting, self._tables)
        # vLLM counts a streaming session that waits for input as running.
        engine = self.governor.engine
        cap = min(limits.max_running + self.num_waiting_for_streaming_input, engine.max_num_seqs)
        setattr(self, self._cap_name, max(cap, len(self.running)))
        self.max_num_scheduled_tokens = limits.token_budget
        self._reader.counts_loads = limits.counts_loads
        self._chunks.limit(limits.longest_chunk_tokens, always=limits.longest_always)
        if limits.decodes_first:
            self._order = decodes_first(self.running, self._counts.prefilling)
        if limits.skipped:
            self._skip(limits.skipped)

    def _skip(self, n: int) -> None:
        """Hide n decodes from vLLM while it schedules a step; each keeps its slot and its KV."""
        if self._order is None:
            self._order = list(self.running)
        out = self._classes.skip(self.running, self._counts.prefilling, n)
        setattr(self, self._cap_name, max(getattr(self, self._cap_name) - len(out), 1))
        self._skipped = out
        self.running[:] = [r for r in self.running if r not in out]

    def _measure(self, done: SchedulerOutput) -> None:
        now_s = self.now_s()
        known = taken(self._scheduled, done)
        if not done.total_num_scheduled_tokens or known is None:
            self._was_busy = False
            return
        # While busy, the time between outputs is what a client sees as ITL.
        took_s = now_s - (self._last_output_s if self._was_busy else known.begun_s)
        sample = known.sample
        sample.duration_s = took_s
        if self._classes.on:
            given = done.num_scheduled_tokens
            sample.by_class = self._classes.measured(given, known.prefilled)
        for one, prefills in self._intervals.of(sample, len(known.prefilled), self._scheduled):
            late = self._classes.late(one) if self._classes.on else None
            self.governor.after_step(one, prefills, late)
        if aside := self._aside:
            started = sum(len(new.prompt_token_ids or ()) for new in done.scheduled_new_reqs)
            aside.observe(sample.prefill_tokens, sample.duration_s, started)
        self._last_output_s, self._was_busy = now_s, bool(self.running)
        if known.prefilled:
            self._note_first_tokens(known.prefilled)
        if self._lost:
            self._note_resumed(done, now_s)

    def _note_first_tokens(self, prefilled: list[str]) -> None:
        wall_s, ttft_of = self.wall_s(), self._classes.ttft_of
        for req_id in prefilled:
            request = self.requests.get(req_id)
            if request is not None and not request.num_output_tokens:
                continue  # prompt not computed yet; None: it ended with its first token
            if (arrival_s := self._awaits_first_token.pop(req_id, None)) is None:
                continue
            late = self.governor.first_token(wall_s - arrival_s, ttft_of and ttft_of(req_id))
            self._autoscaled.first_token(req_id, late=late)
            if request is None or request.is_finished():
                self._autoscaled.gone(req_id)

    def _note_resumed(self, done: SchedulerOutput, now_s: float) -> None:
        """Count the gap between the last token before a preemption and the first one after it."""
        # Also those not in prefill: the prefix cache may have kept all but the last token.
        for req_id in self._lost.keys() & done.num_scheduled_tokens.keys():
            request, (since_s, tokens) = self.requests.get(req_id), self._lost[req_id]
            if request is not None and request.num_output_tokens <= tokens:
                continue
            if request is not None and request.status == RequestStatus.PREEMPTED:
                self._lost[req_id] = now_s, request.num_output_tokens  # by a step in flight
                continue
            del self._lost[req_id]
            late = now_s - since_s > self._classes.promised_s(req_id) if self._classes.on else None
            self.governor.resumed(now_s - since_s, None if late is None else int(late))


channel.install()
cpu_workers.install()
