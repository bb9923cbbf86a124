"""The virtual engine: vLLM's core loop with the production scheduler, time from a profile."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput

from benchmarks.books import Books, ReplayError
from benchmarks.clairvoyant import ClairvoyantScheduler
from benchmarks.link import VirtualLink
from benchmarks.policies import EngineOptions, Plan
from benchmarks.request_level import replay_request_level
from benchmarks.requests import Request
from benchmarks.reserved import ReservedScheduler
from benchmarks.trace import Step, Trace, make_gaps
from benchmarks.virtual import RequestMaker, VirtualClock, VirtualScheduler, make_scheduler
from controller.errors import ConfigError
from controller.records import EngineState
from replicas.profile import StepNoise, StepProfile
from replicas.step_sample import step_sample

# By priority, a request may take the KV blocks of all that were scheduled and then not fit itself:
# vLLM's step is empty, its next one is not.
MOST_EMPTY_STEPS = 10
CONTEXT = 32_768  # tokens a model's request may have, prompt and output

GiveUp = Callable[[float, Sequence[float], Sequence[tuple[float, float, int]]], bool]
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Ground:
    """What all policies of a comparison stand on.

    Args:
        noise_cv, noise_seed: of the step times.
        shared_prefix_tokens: how many tokens all prompts begin with together.
    """

    profile: StepProfile
    noise_cv: float = 0.0
    noise_seed: int = 0
    shared_prefix_tokens: int = 0


def replay(
    requests: Sequence[Request],
    plan: Plan,
    ground: Ground,
    *,
    drain: bool = True,
    give_up: GiveUp = lambda now_s, arrivals_s, gaps: False,
    progress: Progress = lambda finished: None,
) -> Trace:
    """Serve these requests (in order of arrival) in virtual time.

    Args:
        drain: go on until all are served; False: stop when the last has come.
        give_up: asked at each exchange, with the clock, the arrivals of all that wait, and the gaps
            between tokens so far (``Books.gaps``); True ends it.
        progress: told how many more have finished, at each exchange.

    Raises:
        ConfigError: nothing of the workload fits KV memory.
        ReplayError: a token was lost or made up.
    """
    if plan.kind == "request-level":
        return replay_request_level(requests, plan, ground.profile, drain=drain)
    engine = _Engine(requests, plan, ground)
    collecting = gc.isenabled()
    gc.disable()  # a third of the time otherwise; reference counts free the requests
    try:
        return engine.run(drain, give_up, progress)
    finally:
        if collecting:
            gc.enable()


class _Engine:
    def __init__(self, requests: Sequence[Request], plan: Plan, ground: Ground) -> None:
        self._requests = requests
        self._arrived = 0
        self._profile = ground.profile
        self._noise = StepNoise(ground.noise_cv, ground.noise_seed)
        self._clock = VirtualClock()
        block_size = plan.engine.block_size
        self._kv_tokens = ground.profile.kv_tokens // block_size * block_size
        self._context = context = _context(requests, plan.engine, self._kv_tokens)
        self._make_request = RequestMaker(plan, context, ground.shared_prefix_tokens)
        cls: type[VirtualScheduler] = VirtualScheduler
        own: dict[str, Any] = {"clock": self._clock, "speculation": plan.speculation}
        if plan.kind == "reserved":
            cls = ReservedScheduler
        if plan.kind == "clairvoyant":
            cls = ClairvoyantScheduler
            own |= {"requests": requests, "profile": ground.profile, "itl_s": plan.itl_s}
        self._scheduler = make_scheduler(
            cls,
            plan,
            kv_tokens=self._kv_tokens,
            max_model_len=context,
            by_priority=any(r.priority for r in requests),
            **own,
        )
        self._link = VirtualLink(self._scheduler, plan.batching)
        self._books = Books(requests)
        self._steps: list[Step] = []
        self._empty_steps = 0

    def run(self, drain: bool, give_up: GiveUp, progress: Progress) -> Trace:
        clock, requests, books = self._clock, self._requests, self._books
        gave_up, told = False, 0
        while books or self._arrived < len(requests):
            self._let_in()
            if self._link.tick(clock.now_s):
                progress(books.finished - told)
                told = books.finished
                waiting = [r.arrival_time for r in self._scheduler.waiting]
                gave_up = give_up(clock.now_s, waiting, books.gaps)
            if gave_up or (not drain and self._arrived == len(requests)):
                break
            if books:
                self._step()
            elif self._arrived < len(requests):
                clock.now_s = min(requests[self._arrived].arrival_s, self._link.due_s)
        progress(books.finished - told)
        outcomes, stays = books.close(clock.now_s)
        return Trace(
            outcomes[: self._arrived],  # who had not come when it was ended is no part of it
            tuple(self._steps),
            make_gaps(books.gaps),
            stays,
            self._kv_tokens,
            clock.now_s,
            gave_up,
        )

    def _let_in(self) -> None:
        while self._arrived < len(self._requests):
            number, request = self._arrived, self._requests[self._arrived]
            if request.arrival_s > self._clock.now_s:
                return
            self._arrived += 1
            if _tokens(request) <= self._context:
                self._books.come(number, request)
                self._scheduler.add_request(self._make_request(number, request))

    def _step(self) -> None:
        scheduler, books, start_s = self._scheduler, self._books, self._clock.now_s
        scheduled = scheduler.schedule()
        for req_id in scheduler.take_preempted():
            books.preempt(req_id, start_s)
        books.enter_batch([new.req_id for new in scheduled.scheduled_new_reqs], start_s)
        books.enter_batch(scheduled.scheduled_cached_reqs.resumed_req_ids, start_s)
        state = scheduler.state()
        self._check(scheduled.total_num_scheduled_tokens, state)
        if not scheduled.total_num_scheduled_tokens:
            scheduler.speak(scheduled, books.left)  # costs no time: nothing is computed
            return
        sample, _ = step_sample(scheduled, 0.0)
        features = sample.decodes, sample.kv_tokens, sample.prefill_tokens, sample.prefill_context
        duration_s = self._duration_s(scheduled, *features) * self._noise.factor()
        self._clock.now_s = end_s = start_s + duration_s
        model = self._link.model
        self._steps.append(
            Step(
                end_s,
                duration_s,
                sample.decodes,
                sample.prefill_tokens,
                state.running,
                state.waiting,
                state.kv_used_tokens,
                scheduler.cap,
                scheduler.max_num_scheduled_tokens,
                model.predict_s(*features) if model else None,
                sample.kv_tokens,
                sample.prefill_context,
            )
        )
        for output in scheduler.speak(scheduled, books.left):
            ends = output.finish_reason is not None
            books.token(output.request_id, len(output.new_token_ids), ends, end_s)

    def _duration_s(
        self, scheduled: SchedulerOutput, decodes: int, kv: int, prefill: int, context: int
    ) -> float:
        # A draft is verified like a prompt token: one more row in the step's matrices.
        drafts = sum(map(len, scheduled.scheduled_spec_decode_tokens.values()))
        return self._profile.step_s(decodes, kv, prefill + drafts, context)

    def _check(self, tokens: int, state: EngineState) -> None:
        self._empty_steps = 0 if tokens else self._empty_steps + 1
        if self._empty_steps > MOST_EMPTY_STEPS:
            raise ReplayError(f"{len(self._books)} requests are here and none is scheduled")
        if state.kv_used_tokens > self._kv_tokens:
            raise ReplayError(f"{state.kv_used_tokens} KV tokens used of {self._kv_tokens}")


def _tokens(request: Request) -> int:
    return request.input_tokens + request.output_tokens


def _context(requests: Sequence[Request], engine: EngineOptions, kv_tokens: int) -> int:
    """``max_model_len``: a model's context, as far as vLLM starts with it.

    ``CONTEXT``, or the next power of two where a request is longer. KV memory has to hold one
    request of that length, and so has a step where prompts are not computed in chunks: an operator
    sets ``max_model_len`` to what they hold. What a request is allowed beyond it is cut off, as by
    a server; a request that is itself longer is refused.

    Raises:
        ConfigError: it holds none of them, or vLLM does not start with it.
    """
    lengths = [_tokens(r) for r in requests]
    step_tokens = engine.max_num_batched_tokens
    limits = {"kv-tokens": kv_tokens}
    if not engine.enable_chunked_prefill:
        limits["max_num_batched_tokens without chunked prefill"] = step_tokens
    for name, tokens in limits.items():
        if min(lengths) > tokens:
            raise ConfigError(
                [
                    f"{name}: {tokens} is not allowed: the shortest request of the workload"
                    f" takes {min(lengths)}"
                ]
            )
    context = min(max(CONTEXT, 1 << (max(lengths) - 1).bit_length()), *limits.values())
    if engine.long_prefill_token_threshold > context:
        raise ConfigError(
            [
                f"long_prefill_token_threshold: {engine.long_prefill_token_threshold} is not"
                f" allowed: up to max_model_len, here {context}"
            ]
        )
    return context
