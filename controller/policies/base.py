"""What a policy is: two parts, ``Policy`` in the controller, ``StepHalf`` in the engine. Pure.

A policy decides; the Governor and the scheduler enforce. Bounds, drain and lease are theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from controller.config import BatchingConfig
from controller.models.arrays import Floats, Ints
from controller.models.lengths import LengthMoments
from controller.models.pace import DeadlineSlack
from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.records import (
    BatchLimits,
    EngineLimits,
    EngineState,
    Reason,
    ReplicaReport,
    StepLimits,
    StepSample,
)
from controller.request_slo import RequestSlo


@dataclass(frozen=True, slots=True)
class Pool:
    """What all replicas of a group know together.

    Args:
        replicas: how many reported within the last leases.
        lengths: moments of the lengths of their finished requests.
        model: step-time model of all their steps; None where not identified yet.
    """

    replicas: int = 0
    lengths: LengthMoments = field(default_factory=LengthMoments)
    model: StepModel | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A cap on running requests, perhaps a token budget, and what set them."""

    max_running: int
    reason: Reason
    token_budget: int | None = None


class Policy:
    """A policy's part in the controller. It may keep state per replica, rebuilt from reports."""

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        """The limits of one replica, decided at each of its reports."""
        raise NotImplementedError

    def forget(self, replica_id: str) -> None:
        """Drop what is kept of a replica that is gone."""


@dataclass(slots=True)
class Loads:
    """KV transfers from other engines: requests that hold memory for one, but do not run yet.

    Args:
        requests: first those whose KV has come.
        ready: how many these are: they start as soon as a step has a slot for them.
        to_begin: how many more wait, before all others, for memory to transfer into.
    """

    requests: Requests
    ready: int
    to_begin: int = 0


@dataclass(slots=True)  # not frozen, for the time of a step (``Requests``)
class Batch:
    """The requests that run, and the first n of those that may start, each in order of service.

    Args:
        not_running_tokens: KV memory of requests that do not run: sessions that wait for their
            next input, ended requests that a connector still reads. What a request that may start
            holds already is in this, and in its ``shared``.
        slack: where delivery is paced.
        slos: of requests, by id; empty where all have the SLA's.
        waited_s: gives the seconds from the end of the last step that each running request was in,
            with a token or a chunk of its prompt, to the next; 0: it was in none. Shape (n,), at a
            price; with SLOs. None: no request can be skipped.
        before_prefix_wait: gives how many of the first n can start before one that should wait
            for a prefix being computed: it finds that in the prefix cache later.
        priorities: of the running ones and of the first n that wait, shape (n,), where vLLM serves
            the lower one first and preempts the highest; None: it preempts the last to start.
        deferred_in_vain: half-computed prompts were deferred in the last step for the first of the
            queue, and it did not start.
        loads: KV transfers; not among those that may start. None: there are none.
        whole: what is held, where ``running`` leaves some of it out; None: it does not.
    """

    running: Requests
    waiting: Callable[[int], Requests]
    not_running_tokens: int = 0
    slack: DeadlineSlack | None = None
    slos: tuple[RequestSlo, ...] = ()
    waited_s: Callable[[], Floats] | None = None
    before_prefix_wait: Callable[[int], int] = int
    priorities: Callable[[int], tuple[Ints, Ints]] | None = None
    deferred_in_vain: bool = False
    loads: Loads | None = None
    whole: Requests | None = None

    @property
    def loading(self) -> int:
        """How many requests of ``loads`` there are: each has a slot for good."""
        return 0 if self.loads is None else len(self.loads.requests)

    @property
    def to_load(self) -> int:
        """How many of the first that wait have their KV transferred: they need no chunk."""
        return 0 if self.loads is None else self.loads.to_begin

    @property
    def holding(self) -> Requests:
        """Those that run or will, whatever else starts: they hold KV memory for it."""
        if self.whole is not None:
            return self.whole
        return self.running if self.loads is None else self.running.plus(self.loads.requests)

    def with_loads(self, state: EngineState) -> tuple["Batch", EngineState]:
        """The batch and its counts, with requests whose KV has come among those that run.

        They hold memory already, and need a token of the step like any decode. Transfers that
        go on stay in ``loads``.
        """
        if (loads := self.loads) is None:
            return self, state
        coming, ready, more = loads.requests, loads.ready, loads.to_begin
        waiting = max(state.waiting - len(coming), 0)
        state = replace(state, running=state.running + ready, waiting=waiting)
        left = coming.where(np.arange(len(coming)) >= ready)
        running = self.running.plus(coming.first(ready))
        return replace(self, running=running, loads=Loads(left, 0, more)), state


_NONE = requests_of([], [], [], [])
EMPTY_BATCH = Batch(_NONE, lambda n: _NONE)
ReadBatch = Callable[[], Batch]


class StepHalf:
    """A policy's part in one engine, told of all that happens there; here it learns nothing."""

    @property
    def model(self) -> StepModel | None:
        """The step-time model it goes by; None without one, or before it has seen enough."""
        return None

    @property
    def late_anyway(self) -> float | None:
        """The share of tokens that no chunk makes late (l0); None where nothing tells."""
        return None

    def limits(self, state: EngineState, read_batch: ReadBatch, pushed: BatchLimits) -> StepLimits:
        """The limits of the next step.

        Args:
            read_batch: gives the requests themselves, at a price; for counts it need not be called.
            pushed: the last limits of the policy's part in the controller.
        """
        raise NotImplementedError

    def receive(self, pushed: BatchLimits) -> None:
        """New limits have come from the policy's part in the controller."""

    def observe(self, sample: StepSample) -> None:
        """A step is done."""

    def finished(self, output_tokens: int) -> None:
        """A request ended by itself after so many tokens."""

    def aborted(self, output_tokens: int) -> None:
        """A request was aborted after so many tokens."""

    def preempted(self) -> None:
        """A request lost its KV blocks."""

    def resumed(self, gap_s: float, slo_id: int = 0) -> None:
        """A preempted request has its next token, so long after the one before."""

    def set_target_frac(self, itl_frac: float) -> None:
        """Steps are to keep this share of the SLA, so that tokens leave the server inside it."""


class ApplyPushed(StepHalf):
    """Applies the controller's limits: for policies that decide nothing in the engine."""

    def __init__(self, config: BatchingConfig, engine: EngineLimits) -> None:
        self._budget = engine.max_num_batched_tokens
        # A step budget that somebody set is vLLM's: decodes may use all of it.
        self._as_set = config.policy == "static"

    def limits(self, state: EngineState, read_batch: ReadBatch, pushed: BatchLimits) -> StepLimits:
        budget = pushed.token_budget
        if budget is None:
            return StepLimits(pushed.max_running, self._budget)
        return StepLimits(pushed.max_running, budget, may_pause_prefill=self._as_set)
