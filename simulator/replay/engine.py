"""The virtual engine: vLLM's core loop with the production scheduler, time from a profile."""

import gc
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request as EngineRequest

from controller.records import EngineState
from replicas.engine.step_sample import step_sample
from replicas.profiles.disturbances import DisturbedSteps
from simulator.replay.schedulers import scheduler_of
from simulator.virtual.ground import Ground
from simulator.virtual.ledger import Ledger, ReplayError
from simulator.virtual.link import VirtualLink
from simulator.virtual.model_len import max_model_len, tokens_of
from simulator.virtual.plan import Plan
from simulator.virtual.request_maker import RequestMaker
from simulator.virtual.rivals import of_benches
from simulator.virtual.scheduler import VirtualClock, make_scheduler
from simulator.virtual.swap import SwapConnector, sooner
from simulator.virtual.trace import Gap, Step, Trace, make_gaps
from simulator.virtual.watch import Watch
from simulator.workloads.requests import Request, every, follow_up

__all__ = ["GiveUp", "Ground", "Progress", "ReplayError", "replay"]

# By priority, a request may take the KV blocks of all that were scheduled and then not fit itself:
# vLLM's step is empty, its next one is not.
MOST_EMPTY_STEPS = 10
REQUEST_LEVEL = "benchmarks.baselines.request_level:replay_request_level"
AHEAD = 1  # steps that asynchronous scheduling schedules before the outputs of the last are back

GiveUp = Callable[[float, Sequence[float], Sequence[Gap]], bool]
Progress = Callable[[int], object]


def replay(
    requests: Sequence[Request],
    plan: Plan,
    ground: Ground,
    *,
    drain: bool = True,
    give_up: GiveUp = lambda now_s, arrivals_s, gaps: False,
    progress: Progress = lambda finished: None,
) -> Trace:
    """Serve these requests (in order of arrival), and those that follow them, in virtual time.

    Args:
        drain: go on until all are served; False: stop when the last has come, and nothing is known
            of another.
        give_up: asked at each exchange, with the clock, the arrivals of all that wait, and the gaps
            between tokens so far (``Ledger.gaps``); True ends it.
        progress: told how many more have finished, at each exchange.

    Raises:
        ConfigError: nothing of the workload fits KV memory.
        ReplayError: a token was lost or made up.
    """
    if plan.kind == "request-level":
        request_level = of_benches(REQUEST_LEVEL, plan.name)
        trace: Trace = request_level(requests, plan, ground.profile, drain=drain)
        return trace
    warm_up = ground.warm_up if plan.kind == "scheduler" else ()
    engine = Engine((*warm_up, *requests), requests, plan, ground)
    collecting = gc.isenabled()
    gc.disable()  # a third of the time otherwise; reference counts free the requests
    try:
        if warm_up:
            engine.warm_up(warm_up)
        return engine.run(requests, drain, give_up, progress)
    finally:
        if collecting:
            gc.enable()


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that is scheduled and whose output is not back.

    Args:
        chunks: requests whose prompt is not computed to its end with it: they get no token.
        end_s: on the scheduler's clock.
        step: None where nothing is computed.
    """

    scheduled: SchedulerOutput
    chunks: frozenset[str]
    end_s: float
    step: Step | None


class Engine:
    """Serves one sequence of requests after the other.

    Two clocks: the scheduler's, which only runs on, and that of the trace, which begins at 0 with
    each sequence.

    Args:
        all_requests: of all sequences, for what the engine is started with.
        counted: what the clairvoyant knows.
        connector: by which KV goes from engine to engine; None: it does not.
    """

    def __init__(
        self,
        all_requests: Sequence[Request],
        counted: Sequence[Request],
        plan: Plan,
        ground: Ground,
        connector: type[Any] | None = None,
    ) -> None:
        self._times = DisturbedSteps(ground.profile, ground.disturbances, ground.disturbance_seed)
        self._launch = ground.profile.launch
        self._clock = VirtualClock()
        self._charged_ns = 0
        block_size = plan.engine.block_size
        self._kv_tokens = ground.profile.kv_tokens // block_size * block_size
        self._context = max_model_len(all_requests, plan.engine, self._kv_tokens)
        self._make_request = RequestMaker(
            plan, self._context, ground.shared_prefix_tokens, ground.classes
        )
        cls, own = scheduler_of(plan, ground, counted)
        self._watch: Watch | None = own.get("watch")
        self._scheduler = make_scheduler(
            cls,
            plan,
            kv_tokens=self._kv_tokens,
            max_model_len=self._context,
            by_priority=any(r.priority for r in every(all_requests)),
            classes=ground.classes,
            graph_tokens=self._launch.graph_tokens if plan.engine.async_scheduling else 0,
            clock=self._clock,
            profile_kv_read_frac=ground.profile.kv_read_frac,
            connector=connector or (SwapConnector if ground.swap else None),
            **own,
        )
        self._swap = ground.swap
        if ground.swap is not None:
            self._scheduler.connector.pays = sooner(ground.swap, ground.profile)
        self._link = VirtualLink(self._scheduler, plan.batching)
        self._most_flights = 1 + (AHEAD if plan.engine.async_scheduling else 0)
        self._flights: deque[_Flight] = deque()
        self._free_s = 0.0  # when the last step that is scheduled ends
        self._empty_steps = 0
        self._take(())

    def _take(self, requests: Sequence[Request]) -> None:
        self._requests = requests if isinstance(requests, list) else list(requests)
        self._arrived = 0
        self._ledger = Ledger(requests)
        self._steps: list[Step] = []
        self._origin_s = self._clock.now_s

    @property
    def _now_s(self) -> float:
        return self._clock.now_s - self._origin_s

    def warm_up(self, requests: Sequence[Request]) -> None:
        """Serve these to their end, and forget them."""
        self._take(requests)
        self._serve(True, lambda now_s, arrivals_s, gaps: False, lambda finished: None)
        while self._flights:
            self._iterate()

    def run(
        self, requests: Sequence[Request], drain: bool, give_up: GiveUp, progress: Progress
    ) -> Trace:
        """Serve these, and tell what happened."""
        self._take(requests)
        gave_up = self._serve(drain, give_up, progress)
        outcomes, stays = self._ledger.close(self._now_s, self._scheduler.computed())
        return Trace(
            outcomes[: self._arrived],  # those that had not arrived are no part of it
            tuple(self._steps),
            make_gaps(self._ledger.gaps),
            stays,
            self._kv_tokens,
            self._now_s,
            gave_up,
        )

    def _serve(self, drain: bool, give_up: GiveUp, progress: Progress) -> bool:
        """Says whether it was given up."""
        clock, requests, ledger = self._clock, self._requests, self._ledger
        gave_up, told = False, 0
        while ledger or self._arrived < len(requests):
            self._let_in()
            if self._link.tick(clock.now_s):
                self._charge()
                progress(ledger.finished - told)
                told = ledger.finished
                waiting = [r.arrival_time - self._origin_s for r in self._scheduler.waiting]
                gave_up = give_up(self._now_s, waiting, ledger.gaps)
            if gave_up or (not drain and self._arrived == len(requests)):
                break
            if ledger or self._flights:
                self._iterate()
            elif self._arrived < len(requests):
                arrival_s = self._origin_s + requests[self._arrived].arrival_s
                clock.now_s = min(arrival_s, self._link.due_s)
        progress(ledger.finished - told)
        return gave_up

    def _let_in(self) -> None:
        while self._arrived < len(self._requests):
            number, request = self._arrived, self._requests[self._arrived]
            arrival_s = self._origin_s + request.arrival_s
            if arrival_s > self._clock.now_s:
                return
            self._arrived += 1
            if tokens_of(request) <= self._context:
                self._ledger.come(number, request)
                self._scheduler.add_request(self._made(number, request, arrival_s))
            else:
                self._refused(request)

    def _refused(self, request: Request) -> None:
        """A request does not fit: its conversation ends."""

    def _ended(self, request: Request, now_s: float) -> None:
        """An answer has ended: what follows comes when its pause is over."""
        if (after := follow_up(request, now_s)) is not None:
            place = bisect_right(
                self._requests, after.arrival_s, self._arrived, key=lambda r: r.arrival_s
            )
            self._requests.insert(place, after)
            self._ledger.expect(after, place)

    def _made(self, number: int, request: Request, arrival_s: float) -> EngineRequest:
        return self._make_request(number, request, arrival_s)

    def _iterate(self) -> None:
        """What EngineCore does in one iteration of its loop.

        ``EngineCore.step``, or with a step ahead ``step_with_batch_queue``: schedule, and wait for
        the oldest output only where as many steps are under way as may be, or nothing is left to
        schedule.
        """
        if self._scheduler.has_requests():
            flight = self._schedule()
            self._flights.append(flight)
            more = flight.step is not None or self._scheduler.has_requests()
            if more and len(self._flights) < self._most_flights:
                return
        self._land(self._flights.popleft())

    def _schedule(self) -> _Flight:
        scheduler, ledger = self._scheduler, self._ledger
        scheduled = scheduler.schedule()
        self._charge()
        begin_s = max(self._clock.now_s, self._free_s)
        self._begun(begin_s)
        start_s = begin_s - self._origin_s
        for req_id in scheduler.take_preempted():
            ledger.preempt(req_id, start_s)
        ledger.enter_batch([new.req_id for new in scheduled.scheduled_new_reqs], start_s)
        ledger.enter_batch(scheduled.scheduled_cached_reqs.resumed_req_ids, start_s)
        state = scheduler.state()
        self._check(scheduled.total_num_scheduled_tokens, state)
        if not scheduled.total_num_scheduled_tokens:
            return _Flight(scheduled, frozenset(), begin_s, None)
        sample, _ = step_sample(scheduled, 0.0)
        features = sample.features
        duration_s = self._times.step_s(
            *features,
            begin_s,
            [new.req_id for new in scheduled.scheduled_new_reqs],
            sum(map(len, scheduled.scheduled_spec_decode_tokens.values())),
        )
        duration_s += self._swapped_s() + scheduler.drafting_s(scheduled)
        self._free_s = begin_s + duration_s
        if self._most_flights > 1:  # else the step's measured time holds it
            launched_s = self._clock.now_s + self._launch.step_s(
                sample.decodes, sample.prefill_tokens
            )
            self._clock.now_s, self._free_s = launched_s, max(self._free_s, launched_s)
        model = self._link.model
        step = Step(
            self._free_s - self._origin_s,
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
            self._link.capacity_per_s,
        )
        return _Flight(scheduled, scheduler.chunks(scheduled), self._free_s, step)

    def _swapped_s(self) -> float:
        """What the KV takes that comes back before this step, seconds."""
        if self._swap is None:
            return 0.0
        begun = self._scheduler.connector.begun
        taken_s = sum(self._swap.time_s(tokens) for _, tokens in begun)
        begun.clear()
        return taken_s

    def _begun(self, begin_s: float) -> None:
        """A step begins."""

    def _land(self, flight: _Flight) -> None:
        self._clock.now_s = max(self._clock.now_s, flight.end_s)
        now_s, ledger, scheduler = self._now_s, self._ledger, self._scheduler
        if flight.step is not None:
            self._steps.append(flight.step)
        for output in scheduler.finish_step(flight.scheduled, flight.chunks, ledger.remaining):
            ends = output.finish_reason is not None
            ledger.token(output.request_id, len(output.new_token_ids), ends, now_s)
            if ends:
                self._ended(self._requests[int(output.request_id)], now_s)
        self._charge()

    def _charge(self) -> None:
        """Let the clock run for the own code since this was last asked, where it is charged."""
        if self._watch is not None:
            own_ns = self._watch.own_ns
            self._clock.now_s += (own_ns - self._charged_ns) * 1e-9
            self._charged_ns = own_ns

    def _check(self, tokens: int, state: EngineState) -> None:
        self._empty_steps = 0 if tokens else self._empty_steps + 1
        if self._empty_steps > MOST_EMPTY_STEPS:
            raise ReplayError(f"{len(self._ledger)} requests are here and none is scheduled")
        if state.kv_used_tokens > self._kv_tokens:
            raise ReplayError(f"{state.kv_used_tokens} KV tokens used of {self._kv_tokens}")
