"""What a policy is: two pure halves, the fleet half in the controller, the step half in the engine.

A policy decides; the Governor and the scheduler enforce. Bounds, drain and lease are theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from controller.config import BatchingConfig
from controller.models.lengths import LengthMoments
from controller.models.pace import DeadlineSlack
from controller.models.requests import Ints, Requests, requests_of
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
    """The fleet half. It may keep state per replica, rebuilt from reports."""

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        """The limits of one replica, decided at each of its reports."""
        raise NotImplementedError

    def forget(self, replica_id: str) -> None:
        """Drop what is kept of a replica that is gone."""


@dataclass(slots=True)
class Loads:
    """Requests whose KV comes from another engine, and that hold memory for it, but do not run yet.

    Args:
        requests: those whose KV is here first.
        ready: how many these are: they start as soon as a step has a slot for them.
        to_begin: how many more wait, before all others, for memory to load into.
    """

    requests: Requests
    ready: int
    to_begin: int = 0


@dataclass(slots=True)  # not frozen, for the time of a step (``Requests``)
class Batch:
    """The requests that run, and the first n of those that may start, each in order of service.

    Args:
        held_elsewhere_tokens: KV memory of requests that do not run: sessions that wait for their
            next input, ended requests that a connector still reads. Of one that may start it is
            ``shared``, too.
        leads: where delivery is paced.
        slos: by their numbers, which requests have; empty where nobody goes by them.
        waited_s: gives the seconds since the last token of each running one, when the step begins,
            shape (n,), at a price; with SLOs. None: nobody can be left out of the step.
        apart: of the first n that wait, how many come before one that begins like another whose
            prompt is being computed: it finds that in the prefix cache later.
        priorities: of the running ones and of the first n that wait, shape (n,), where vLLM serves
            the lower one first and preempts the highest; None: it preempts the last to start.
        yielded_in_vain: half-computed prompts yielded in the last step to the first of the queue,
            and it did not start.
        loads: they are not among those that may start; None: there are none.
        whole: what is held, where ``running`` leaves some of it out; None: it does not.
    """

    running: Requests
    waiting: Callable[[int], Requests]
    held_elsewhere_tokens: int = 0
    leads: DeadlineSlack | None = None
    slos: tuple[RequestSlo, ...] = ()
    waited_s: Callable[[], NDArray[np.float64]] | None = None
    apart: Callable[[int], int] = int
    priorities: Callable[[int], tuple[Ints, Ints]] | None = None
    yielded_in_vain: bool = False
    loads: Loads | None = None
    whole: Requests | None = None

    @property
    def loading(self) -> int:
        """How many of ``loads`` there are: each has a slot for good."""
        return 0 if self.loads is None else len(self.loads.requests)

    @property
    def to_load(self) -> int:
        """How many of the first that wait load their prompts: no chunk holds them up."""
        return 0 if self.loads is None else self.loads.to_begin

    @property
    def holding(self) -> Requests:
        """Those that run or will, whatever else starts: they hold KV memory for it."""
        if self.whole is not None:
            return self.whole
        return self.running if self.loads is None else self.running.plus(self.loads.requests)

    def with_loads(self, state: EngineState) -> tuple["Batch", EngineState]:
        """The batch and its counts with the loaded ones among those that run.

        They hold memory already, and need a token of the step like any decode. Those that are still
        loading stay in ``loads``.
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
    """The step half: one per engine, told of all that happens there; here it learns nothing."""

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
            pushed: what the fleet half decided last.
        """
        raise NotImplementedError

    def receive(self, pushed: BatchLimits) -> None:
        """New limits of the fleet half have come."""

    def observe(self, sample: StepSample) -> None:
        """A step is done."""

    def finished(self, output_tokens: int) -> None:
        """A request ended by itself after so many tokens."""

    def aborted(self, output_tokens: int) -> None:
        """A request was aborted after so many tokens."""

    def preempted(self) -> None:
        """A request lost its KV blocks."""

    def resumed(self, gap_s: float, number: int = 0) -> None:
        """A preempted request has its next token, so long after the one before.

        Args:
            number: of its SLO, where requests have one of their own.
        """

    def set_target_frac(self, itl_frac: float) -> None:
        """Steps are to keep this share of the SLA, so that tokens leave the server inside it."""


class ApplyPushed(StepHalf):
    """The step half of policies that decide in the slow loop only: it applies what was pushed."""

    def __init__(self, config: BatchingConfig, engine: EngineLimits) -> None:
        self._budget = engine.max_num_batched_tokens
        # A step budget that somebody set is vLLM's: decodes may use all of it.
        self._as_set = config.policy == "static"

    def limits(self, state: EngineState, read_batch: ReadBatch, pushed: BatchLimits) -> StepLimits:
        budget = pushed.token_budget
        if budget is None:
            return StepLimits(pushed.max_running, self._budget)
        return StepLimits(pushed.max_running, budget, may_pause_prefill=self._as_set)
