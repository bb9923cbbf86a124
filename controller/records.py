"""The records that pass between the parts: frozen, numbers with units in their names.

A report is the replica's whole recent memory, and rows of steps are sent until the controller has
them. So a report that is lost, late or sent twice changes nothing, and a new controller soon knows
everything (soft state).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import numpy as np

from controller.models.arrays import Floats
from controller.models.histogram import LogHistogram
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.models.survival import BINS, Exposure
from controller.switch import Switches
from controller.version import VERSION

Reason = Literal["static", "memory", "sla", "bound", "load", "start"]
"""What set a cap; ``bound``: B_min, B_max, the engine's size; ``load``: nothing, as all requests
may run."""

YOUNG_STEPS, YOUNG_PERIOD_S = 64, 0.1
"""A young engine reports more often: until then its limits are a guess."""

ROW_COLUMNS = 5
"""Numbers in a step's row; after them one for each class, its decodes."""

Role = Literal["mixed", "prefill"]
"""What an engine that can do both does: ``mixed``: whole requests, and decodes for which others
computed the prompt; ``prefill``: prompts for others (``controller.roles``)."""

Mode = Literal["leased", "fallback", "local"]
"""What decides: the controller; the replica after its lease ended; the replica, without any
controller."""


@dataclass(slots=True)
class StepSample:
    """One engine step. Not frozen, as one is made in every step.

    Args:
        decodes: requests that decoded.
        kv_tokens: KV tokens that these attended to, summed.
        prefill_tokens: prompt tokens computed, over all prefill chunks of the step.
        prefill_context: sum over chunks of chunk x (context before it + chunk / 2), tokens^2.
        duration_s: since the previous output while busy, otherwise since it was scheduled.
        started: prompt tokens to compute, without prefix hits, of requests with their first chunk.
        seen_s: time between outputs, if that counts for another step
            (``replicas.engine.intervals``); None: ``duration_s``.
        by_class: decodes of each class; empty if all have the SLA's ITL.
    """

    decodes: int
    kv_tokens: int
    prefill_tokens: int
    prefill_context: int
    duration_s: float
    started: tuple[int, ...] = field(default=(), kw_only=True)
    seen_s: float | None = field(default=None, kw_only=True)
    by_class: tuple[int, ...] = field(default=(), kw_only=True)

    @property
    def features(self) -> tuple[int, int, int, int]:
        """The features of a step-time model: the first four."""
        return self.decodes, self.kv_tokens, self.prefill_tokens, self.prefill_context


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine was started with; no later limit exceeds it.

    Args:
        tokens_per_decode: 1 + speculative tokens: what one decode takes of the budget.
        long_prompt_tokens: at most this much of a prompt is computed in one step; 0: no bound.
        whole_chunk_tokens: prompts are computed in multiples of this, except at the end; 0: any.
        max_model_len: tokens of the longest request; None: unknown.
        graph_tokens: of the largest step with a CUDA graph; 0: none.
        kv_token_bytes: KV memory of one token; 0: unknown.
        kv_read_frac: memory that a decode reads for each token of context, over what it reads
            without context (the weights); 0: unknown.
        by_priority: whether it schedules by priority.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: int
    block_tokens: int
    tokens_per_decode: int = 1
    long_prompt_tokens: int = 0
    whole_chunk_tokens: int = 0
    max_model_len: int | None = None
    graph_tokens: int = 0
    kv_token_bytes: float = 0.0
    kv_read_frac: float = 0.0
    by_priority: bool = False

    def decode_tokens(self, decodes: int, drafts: int | None) -> int:
        """Tokens of the budget that ``decodes`` take; ``drafts`` as in ``EngineState``."""
        return decodes * self.tokens_per_decode if drafts is None else decodes + drafts


@dataclass(slots=True)
class EngineState:
    """What the engine holds before a step; blocks that no request holds count as free.

    Not frozen, as it is made before every step.

    Args:
        drafts: tokens that the step verifies; None: as configured for each decode.
        decodes: running requests that decode.
        decode_kv_tokens: KV tokens that these attend to.
        prompts: tokens left and tokens computed of each running request in prefill.
        loading: requests with a KV transfer, which keep their slot.
        ready: number of these whose KV is here: they start in the step, with a token each.
        outranks: tells whether a running request is preempted before the first waiting one; costly.
        to_load: first waiting requests that need no chunk, as their KV is to be loaded.
        by_class: decodes of each class; empty: all have the SLA's ITL.
        itl_s: promised ITL of each class, seconds.
        loose: decodes without a promised ITL, which a step may skip.
        hurried: whether a prompt in prefill is of a class with a promised ITL.
    """

    running: int
    waiting: int
    kv_used_tokens: int
    drafts: int | None = None
    decodes: int = 0
    decode_kv_tokens: int = 0
    prompts: Sequence[tuple[int, int]] = ()
    loading: int = 0
    to_load: int = 0
    by_class: Sequence[int] = ()
    ready: int = 0
    outranks: Callable[[], bool] = bool
    itl_s: Sequence[float] = ()
    loose: int = 0
    hurried: bool = False


@dataclass(slots=True)
class StepLimits:
    """The limits of one step: running requests, and tokens over all of them.

    Args:
        may_pause_prefill: the budget may leave no block for prompts while others decode.
        reason: what keeps the next request waiting; None: the controller's cap.
        longest_chunk_tokens: of one prompt, at most; None: as configured.
        longest_always: ``longest_chunk_tokens`` also holds in an engine without such a limit.
        decodes_first: decodes get their tokens before prompts do.
        counts_loads: each KV transfer that begins takes a slot of ``max_running``.
        skipped: decodes without a promised ITL that the step leaves out.
    """

    max_running: int
    token_budget: int
    may_pause_prefill: bool = False
    reason: Reason | None = None
    longest_chunk_tokens: int | None = None
    longest_always: bool = False
    decodes_first: bool = False
    counts_loads: bool = False
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Reserve:
    """KV memory kept free for running requests: fixed + each x running requests, tokens."""

    fixed: float = 0.0
    each: float = 0.0


@dataclass(frozen=True, slots=True)
class ClassTarget:
    """Seconds that a step with prompt tokens may take if it decodes a request of this class.

    Args:
        target_full_s: applies if more requests wait than the law counted on.
        inside_s: planned step time that is still in time at its percentile; 0: it is promised no
            ITL.
    """

    target_s: float
    target_full_s: float
    inside_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClassSlo:
    """The promise to requests of one class between tokens; infinite: none."""

    itl_s: float
    percentile: float


@dataclass(frozen=True, slots=True)
class RecentSteps:
    """Means over the steps since the last report; all 0 if there was no such step.

    Args:
        steps: steps with at least one decode.
        itl_s: ITL, weighted by the decodes of each step (tau-bar).
        decodes: decode batch size (b-bar).
        tokens: decode and prefill tokens of a step.
    """

    steps: int = 0
    itl_s: float = 0.0
    decodes: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class BoundSteps:
    """Steps by what kept requests waiting.

    ``load``: nothing, no request waited; ``bound``: a configured limit; ``pushed``: the
    controller's cap.
    """

    memory: int = 0
    sla: int = 0
    bound: int = 0
    load: int = 0
    pushed: int = 0


@dataclass(frozen=True, slots=True)
class Advised:
    """Counts over steps whose limits were computed and not applied.

    Args:
        starts, starts_held: requests that started, and how many were above the cap.
        prompt_tokens, tokens_moved: prompt tokens computed, and how many were beyond the chunk.
    """

    starts: int = 0
    starts_held: int = 0
    prompt_tokens: int = 0
    tokens_moved: int = 0


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of steps as they are sent (``controller.law.rows``).

    Args:
        first: number of the first row.
        columns: of ``table``.
        table: its numbers, row by row, float64 in the machine's order.
        starts: row number and prompt tokens of each request that started, alternating.
    """

    first: int = 0
    columns: int = ROW_COLUMNS
    table: bytes = b""
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What one replica measured and holds.

    Args:
        seq: number of the report in one engine's life, from 1.
        decoding, prefilling: N^d and N^p of the paper; waiting requests count as prefilling.
        arrivals, finished, preemptions: counted since the engine started.
        arrival_rate_per_s: of requests to be answered here, over the last seconds of the engine's
            clock.
        lengths: moments of the last finished requests' lengths, tokens.
        itl, ttft: histograms since the engine started, seconds.
        overruled: steps in which more requests were still running than the cap.
        own_errors: errors of Brimful that the engine survived (decision 32).
        lengths_seen: ends and exposures of output lengths, as of ``exposure``, float32.
        rows: steps since the last row that the controller has.
        batch, queue: the running and the first waiting requests, as of ``batch_table``, float32.
        slos: of the classes in ``rows``, if these differ in ITL.
        memory: the policy's state, as it came with the present limits.
        generation: counts the engine's configurations; limits for another one are not applied.
        model, late_anyway: of the present limits; the model only after ``MIN_STEPS`` steps, as it
            is a guess before.
        bound_steps: since the engine started.
        enforced: whether limits are applied; otherwise they are only reported.
        switches: all known switches of control.
        version: of the reporting code.
        prompt_backlog_tokens: prompt tokens yet to be computed, of running and waiting requests,
            without prefix hits.
        kv_backlog_tokens: KV memory that these prompts will take.
        written_tokens: to KV memory since the engine started.
        late_itl, late_ttft: how many in ``itl`` and ``ttft`` are late by the SLA.
        prompts: moments of the last prompts that arrived, tokens; outputs count as 0.
        itl_frac: the target of steps as a share of the SLA.
        latest: moments of the requests that ended last, tokens.
        config_refused: why the last ``user_config`` was refused; None: it was not.
        busy_s: duration of all steps since the engine started, seconds.
        busy_frac: share of the last seconds in which a step ran, 0 to 1.
        advised: what control would have moved, if it was not enforced.
        role: the present role; "prefill" once ``controller.roles.keeps_itl`` is false. None: no
            roles.
        leaving: the replica is being removed: it ends its requests and gets no more.
        for_others: part of ``arrivals`` that another engine of the group answers.
        drafts: as in ``EngineState``.
    """

    replica_id: str
    group: str
    seq: int
    engine: EngineLimits
    mode: Mode
    token_budget: int
    running: int
    waiting: int
    decoding: int
    prefilling: int
    kv_used_tokens: int
    arrivals: int
    finished: int
    preemptions: int
    arrival_rate_per_s: float
    recent: RecentSteps
    lengths: LengthMoments
    itl: LogHistogram
    ttft: LogHistogram
    overruled: int = 0
    lengths_seen: bytes = b""
    rows: PackedRows = field(default_factory=PackedRows)
    batch: bytes = b""
    queue: bytes = b""
    slos: tuple[ClassSlo, ...] = ()
    memory: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0
    model: StepModel | None = None
    bound_steps: BoundSteps = BoundSteps()
    enforced: bool = True
    switches: Switches = ()
    version: str = VERSION
    prompt_backlog_tokens: int = 0
    late_itl: int = 0
    late_ttft: int = 0
    prompts: LengthMoments = field(default_factory=LengthMoments)
    itl_frac: float = 1.0
    own_errors: int = 0
    late_anyway: float | None = None
    config_refused: str | None = None
    busy_s: float = 0.0
    busy_frac: float = 0.0
    advised: Advised = Advised()
    latest: LengthMoments = field(default_factory=LengthMoments)
    role: Role | None = None
    leaving: bool = False
    for_others: int = 0
    kv_backlog_tokens: int = 0
    written_tokens: int = 0
    drafts: int | None = None

    @property
    def young(self) -> bool:
        """Whether the engine has just made its first steps, so that the next report is urgent."""
        columns = self.rows.columns * 8
        made = self.rows.first + len(self.rows.table) // columns
        return len(self.rows.table) > 0 and made < YOUNG_STEPS

    @property
    def decode_tokens(self) -> int:
        """Tokens of a step's budget that its decodes take."""
        return self.engine.decode_tokens(self.decoding, self.drafts)

    @property
    def batch_table(self) -> Floats:
        """The running requests in groups of similar ones: tokens that one holds once its prompt is
        computed, one block included; tokens generated; tokens it may still generate; number of
        requests. Shape (groups, 4)."""
        return _table(self.batch)

    @property
    def queue_table(self) -> Floats:
        """As ``batch_table``, of the first waiting requests, with the memory each will take."""
        return _table(self.queue)

    @property
    def exposure(self) -> Exposure:
        """Number of answers that ended in each bin of lengths, and that reached it."""
        if not self.lengths_seen:
            return Exposure.nothing()
        ended, at_risk = np.frombuffer(self.lengths_seen, np.float32).astype(float).reshape(2, BINS)
        return Exposure(ended, at_risk)

    @property
    def kv_frac(self) -> float:
        """Share of KV memory in use, 0 to 1."""
        return self.kv_used_tokens / self.engine.kv_tokens if self.engine.kv_tokens else 0.0


@dataclass(frozen=True, slots=True)
class AutoscaledLoad:
    """The load of an engine by classes that count for autoscaling.

    Args:
        running, waiting, arrival_rate_per_s, prompts, lengths: as in ``ReplicaReport``.
        first_tokens, late_first_tokens: counted since the engine started.
    """

    running: int
    waiting: int
    arrival_rate_per_s: float
    prompts: LengthMoments
    lengths: LengthMoments
    first_tokens: int
    late_first_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport(ReplicaReport):
    """An engine's report to its own replica: ``ReplicaReport`` and values of the present limits.

    The controller, from which these mostly come, gets only the ``ReplicaReport``.

    Args:
        autoscaled: None: all requests count for autoscaling.
    """

    reason: Reason
    max_running: int
    capacity_per_s: float | None = None
    capacity_error_frac: float = 0.0
    sla_out_of_reach: bool = False
    autoscaled: AutoscaledLoad | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The limits of one replica.

    Args:
        max_running: the cap on running requests.
        reason: what set it.
        token_budget: tokens of a step; None: as the engine was started.
        target_s, target_full_s: seconds that a step with prompt tokens may take; the second applies
            if more requests wait than ``counted_waiting``. None: no bound.
        by_class: targets of each class, if classes differ.
        model: the step-time model of the targets.
        reserve: KV memory kept free for running requests; None: no request waits for memory.
        late_anyway: the share of tokens that no chunk makes late; None: unknown.
    """

    max_running: int
    reason: Reason
    token_budget: int | None = None
    target_s: float | None = None
    target_full_s: float | None = None
    counted_waiting: int = 0
    by_class: tuple[ClassTarget, ...] = ()
    model: StepModel | None = None
    reserve: Reserve | None = None
    late_anyway: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits(Decision):
    """The controller's answer: a lease on these limits.

    Args:
        lease_s: how long they hold after arrival, by the replica's clock.
        enforce: whether the configuration has them applied; ``switches`` may say no.
        capacity_per_s: requests/s one replica carries inside the SLA; None if unknown.
        capacity_error_frac: its standard error, as a share.
        sla_out_of_reach: no batch keeps the SLA; one decode alone takes longer, or nearly.
        model: the replica's step-time model if the policy sizes steps by it, otherwise the group's.
        usual_speed: steps of up to this multiple of the model are noise.
        memory: the policy's state; the engine keeps it and sends it back.
        generation: of the report that they answer.
        wanted_row: the first row of a step that the next report is to bring.
        period_s: time until the next sync.
        replicas: number of replicas of the group that report to the controller.
        switches: all known switches of control.
        role: the role to have; None: roles are not configured.
    """

    lease_s: float
    enforce: bool = True
    capacity_per_s: float | None = None
    replicas: int = 1
    sla_out_of_reach: bool = False
    switches: Switches = ()
    capacity_error_frac: float = 0.0
    role: Role | None = None
    usual_speed: float = 1.2
    memory: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 0
    wanted_row: int = 0
    period_s: float = 0.0


def _table(packed: bytes) -> Floats:
    return np.frombuffer(packed, np.float32).astype(float).reshape(-1, 4)


R = TypeVar("R")


def to_wire(record: Any) -> dict[str, Any]:
    """A record as a dict of primitives (msgpack, JSON)."""
    # Like dataclasses.asdict without deep copies: reports are made in the engine's core loop.
    return {f.name: _plain(getattr(record, f.name)) for f in fields(record)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_wire(value)
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return [to_wire(record) for record in value]
    return value


@functools.cache  # slow, and its result does not change
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def from_wire(kind: type[R], data: dict[str, Any]) -> R:
    """The record from ``to_wire``; keys that this version does not know are left out."""
    hints = _hints(kind)  # type: ignore[arg-type]
    known = {f.name: data[f.name] for f in fields(kind) if f.name in data}  # type: ignore[arg-type]
    return kind(**{name: _revive(hints[name], value) for name, value in known.items()})


def _revive(hint: Any, value: Any) -> Any:
    if isinstance(value, dict):
        kinds = (hint, *get_args(hint))
        record = next((k for k in kinds if isinstance(k, type) and is_dataclass(k)), None)
        return from_wire(record, value) if record else value
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return tuple(from_wire(get_args(hint)[0], record) for record in value)
    return tuple(value) if isinstance(value, list) else value
