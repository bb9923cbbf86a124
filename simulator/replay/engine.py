"""The virtual engine: vLLM's core loop with the production scheduler, time from a profile."""

import gc
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request as EngineRequest

from controller.records import EngineReport, EngineState
from replicas.engine.step_sample import step_sample
from replicas.profiles.disturbances import DisturbedSteps
from simulator.virtual.ledger import Ledger, ReplayError
from simulator.virtual.link import VirtualLink
from simulator.virtual.model_len import max_model_len, tokens_of
from simulator.virtual.plan import Plan
from simulator.virtual.request_maker import RequestMaker
from simulator.virtual.rivals import of_benches
from simulator.virtual.scenario import Scenario
from simulator.virtual.scheduler import VirtualClock, VirtualScheduler, make_scheduler
from simulator.virtual.swap import SwapConnector, sooner
from simulator.virtual.trace import Gap, Outcome, Step, Trace, make_gaps
from simulator.workloads.requests import Request, every, follow_up

__all__ = ["GiveUp", "Progress", "ReplayError", "Scenario", "replay"]

# With priorities, a request may take the KV blocks of all scheduled ones and then not fit: vLLM's
# step is empty, its next one is not.
MOST_EMPTY_STEPS = 10
RIVAL = "benchmarks.baselines.rival_scheduler:RivalScheduler"
AHEAD = 1  # steps that asynchronous scheduling schedules before the last outputs are back

GiveUp = Callable[[float, Sequence[float], Sequence[Gap]], bool]
Progress = Callable[[int], object]


def replay(
    requests: Sequence[Request],
    plan: Plan,
    scenario: Scenario,
    *,
    drain: bool = True,
    give_up: GiveUp = lambda now_s, arrivals_s, gaps: False,
    progress: Progress = lambda finished: None,
) -> Trace:
    """Serve these requests (in order of arrival), and those that follow them, in virtual time.

    Args:
        drain: serve all requests; False: stop at the last known arrival.
        give_up: called at each sync with the clock, the arrivals of waiting requests, and all gaps
            between tokens so far (``Ledger.gaps``); True ends the replay.
        progress: called at each sync with the number of requests that have finished since.

    Raises:
        ConfigError: no request of the workload fits KV memory.
        ReplayError: a token was lost or made up.
    """
    engine, arrivals = Engine(requests, plan, scenario), Arrivals(requests)
    ledger, gave_up, shown = engine.ledger, False, 0
    with uncollected():
        while arrivals or engine.has_requests:
            while arrivals.next_s <= engine.next_s:
                number, request = arrivals.pop()
                engine.send(number, request, request.arrival_s)
            if engine.begin_turn():
                progress(ledger.finished - shown)
                shown = ledger.finished
                gave_up = give_up(engine.now_s, engine.waiting_since_s(), ledger.gaps)
            if gave_up or not (drain or arrivals):
                break
            engine.end_turn()
            arrivals.take(engine.followers)
    progress(ledger.finished - shown)
    outcomes = engine.close()
    return Trace(
        tuple(outcomes.values()),
        tuple(engine.steps),
        make_gaps(ledger.gaps),
        engine.kv_tokens,
        engine.now_s,
    )


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection: it is a third of a replay's time, and reference counts suffice."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Arrivals:
    """Future requests by arrival; of equal ones, the first added is first."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._known, self._came = count(), count()
        self._heap = [(request.arrival_s, next(self._known), request) for request in requests]

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """The next arrival; infinite without one."""
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> tuple[int, Request]:
        """The next request, numbered in order of arrival."""
        return next(self._came), heapq.heappop(self._heap)[2]

    def take(self, more: list[Request]) -> None:
        """Add these requests; empties the list."""
        for request in more:
            heapq.heappush(self._heap, (request.arrival_s, next(self._known), request))
        more.clear()


@dataclass(frozen=True, slots=True)
class Flight:
    """A scheduled step without output.

    Args:
        chunks: requests whose prompt is not complete after it: they get no token.
        end_s: on the scheduler's clock.
        step: None if nothing is computed.
    """

    scheduled: SchedulerOutput
    chunks: frozenset[str]
    end_s: float
    step: Step | None


class Engine:
    """One engine, to which requests are sent while it runs; a request's id is its number.

    Args:
        all_requests: requests that may come, for the engine's options.
        connector: moves KV between engines; None: there is none.

    Attributes:
        followers: requests that follow answers that ended here, since it was last emptied.
        steps: all steps that computed something.
        kv_tokens: size of KV memory.
    """

    def __init__(
        self,
        all_requests: Sequence[Request],
        plan: Plan,
        scenario: Scenario,
        connector: type[Any] | None = None,
    ) -> None:
        self._times = DisturbedSteps(
            scenario.profile, scenario.disturbances, scenario.disturbance_seed
        )
        self._launch = scenario.profile.launch
        self._clock = VirtualClock()
        block_size = plan.engine.block_size
        self.kv_tokens = scenario.profile.kv_tokens // block_size * block_size
        self._context = max_model_len(all_requests, plan.engine, self.kv_tokens)
        self._make_request = RequestMaker(plan, self._context, scenario.classes)
        cls, own = _scheduler_of(plan, scenario)
        self._scheduler = make_scheduler(
            cls,
            plan,
            kv_tokens=self.kv_tokens,
            max_model_len=self._context,
            by_priority=any(r.priority for r in every(all_requests)),
            classes=scenario.classes,
            graph_tokens=self._launch.graph_tokens if plan.engine.async_scheduling else 0,
            clock=self._clock,
            profile_kv_read_frac=scenario.profile.kv_read_frac,
            connector=connector or (SwapConnector if scenario.swap else None),
            **own,
        )
        self._swap = scenario.swap
        if scenario.swap is not None:
            self._scheduler.connector.pays = sooner(scenario.swap, scenario.profile)
        self._link = VirtualLink(self._scheduler, plan.batching)
        self._most_flights = 1 + (AHEAD if plan.engine.async_scheduling else 0)
        self._flights: deque[Flight] = deque()
        self._free_s = 0.0  # end of the last scheduled step
        self._empty_steps = 0
        self._sent: deque[tuple[int, Request]] = deque()  # to be added before the next step
        self.ledger = Ledger()
        self.steps: list[Step] = []
        self.followers: list[Request] = []

    @property
    def now_s(self) -> float:
        return self._clock.now_s

    @property
    def has_requests(self) -> bool:
        """Whether a request is here that is not answered."""
        return bool(self.ledger or self._sent)

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do except for syncs."""
        return not (self.has_requests or self._flights)

    @property
    def next_s(self) -> float:
        """Time of its next action; without a request, its next sync."""
        return max(self._clock.now_s, self._link.due_s) if self.idle else self._clock.now_s

    @property
    def report(self) -> EngineReport | None:
        """Its report at the last sync; None before the first."""
        return self._link.report

    def waiting_since_s(self) -> list[float]:
        """Arrival times of waiting requests."""
        return [request.arrival_time for request in self._scheduler.waiting]

    def send(self, number: int, request: Request, now_s: float) -> None:
        """Take a request that arrives now."""
        if self.idle:
            self._clock.now_s = max(self._clock.now_s, now_s)
        self._sent.append((number, request))

    def begin_turn(self) -> bool:
        """Add sent requests, and sync if it is due; returns whether it was."""
        self._clock.now_s = self.next_s
        self._let_in()
        return self._link.tick(self._clock.now_s)

    def end_turn(self) -> None:
        """One iteration of EngineCore's loop, if there is work."""
        if self.ledger or self._flights:
            self._iterate()

    def close(self) -> dict[int, Outcome]:
        """The outcome of each request until now; the last ones may not have been added yet."""
        self._let_in()
        return self.ledger.close(self._scheduler.computed())

    def _let_in(self) -> None:
        while self._sent:
            number, request = self._sent.popleft()
            if tokens_of(request) <= self._context:
                self.ledger.come(number, request)
                self._scheduler.add_request(self._made(number, request))
            else:
                self.ledger.refuse(number, request)

    def _made(self, number: int, request: Request) -> EngineRequest:
        return self._make_request(number, request, request.arrival_s)

    def _iterate(self) -> None:
        """One iteration of EngineCore's loop.

        ``EngineCore.step``, or with a step ahead ``step_with_batch_queue``: schedule; wait for the
        oldest output only if the greatest number of steps is in flight, or nothing is left to
        schedule.
        """
        if self._scheduler.has_requests():
            flight = self._schedule()
            self._flights.append(flight)
            more = flight.step is not None or self._scheduler.has_requests()
            if more and len(self._flights) < self._most_flights:
                return
        self._land(self._flights.popleft())

    def _schedule(self) -> Flight:
        scheduler, ledger = self._scheduler, self.ledger
        scheduled = scheduler.schedule()
        begin_s = max(self._clock.now_s, self._free_s)
        self._begun(begin_s)
        for req_id in scheduler.take_preempted():
            ledger.preempt(req_id)
        ledger.enter_batch([new.req_id for new in scheduled.scheduled_new_reqs], begin_s)
        ledger.enter_batch(scheduled.scheduled_cached_reqs.resumed_req_ids, begin_s)
        state = scheduler.state()
        self._check(scheduled.total_num_scheduled_tokens, state)
        if not scheduled.total_num_scheduled_tokens:
            return Flight(scheduled, frozenset(), begin_s, None)
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
        if self._most_flights > 1:  # else the step's measured time includes it
            launched_s = self._clock.now_s + self._launch.step_s(
                sample.decodes, sample.prefill_tokens
            )
            self._clock.now_s, self._free_s = launched_s, max(self._free_s, launched_s)
        model = self._link.model
        step = Step(
            self._free_s,
            duration_s,
            sample.decodes,
            sample.prefill_tokens,
            state.running,
            state.kv_used_tokens,
            scheduler.cap,
            model.predict_s(*features) if model else None,
        )
        return Flight(scheduled, scheduler.chunks(scheduled), self._free_s, step)

    def _swapped_s(self) -> float:
        """Seconds for the KV that comes back before this step."""
        if self._swap is None:
            return 0.0
        begun = self._scheduler.connector.begun
        taken_s = sum(self._swap.time_s(tokens) for _, tokens in begun)
        begun.clear()
        return taken_s

    def _begun(self, begin_s: float) -> None:
        """A step begins."""

    def _land(self, flight: Flight) -> None:
        self._clock.now_s = now_s = max(self._clock.now_s, flight.end_s)
        ledger, scheduler = self.ledger, self._scheduler
        if flight.step is not None:
            self.steps.append(flight.step)
        for output in scheduler.finish_step(flight.scheduled, flight.chunks, ledger.remaining):
            ends = output.finish_reason is not None
            request = ledger.token(output.request_id, len(output.new_token_ids), ends, now_s)
            if ends and (after := follow_up(request, now_s)) is not None:
                self.followers.append(after)

    def _check(self, tokens: int, state: EngineState) -> None:
        self._empty_steps = 0 if tokens else self._empty_steps + 1
        if self._empty_steps > MOST_EMPTY_STEPS:
            raise ReplayError(f"{len(self.ledger)} requests are here and none is scheduled")
        if state.kv_used_tokens > self.kv_tokens:
            raise ReplayError(f"{state.kv_used_tokens} KV tokens used of {self.kv_tokens}")


def _scheduler_of(plan: Plan, scenario: Scenario) -> tuple[type[VirtualScheduler], dict[str, Any]]:
    """The class that runs a plan, and its own arguments except the clock."""
    own: dict[str, Any] = {"speculation": plan.speculation}
    if plan.rival is not None:
        return of_benches(RIVAL, plan.name), own | {
            "options": plan.rival,
            "profile": scenario.profile,
        }
    return VirtualScheduler, own
