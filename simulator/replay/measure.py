"""From a trace to the numbers of a comparison; all definitions are here."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.config import Sla
from simulator.virtual.trace import Outcome, Trace
from simulator.workloads.lengths import Floats

TOLERANCE = 1 + 1e-9  # a step sized to exactly D is inside despite rounding
COLD_S = 60.0  # first minute of a replay, in which a policy has no data


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles, milliseconds; None without data."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p99_9: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The object that ``--json`` prints.

    Args:
        policy: the spec as given.
        requests, finished: offered, and served to their end.
        duration_s: from the first arrival to the end of the replay.
        preemptions: losses of KV blocks.
        mean_running: running requests, averaged over time.
        kv_peak_frac: the largest share of KV memory in use.
        itl_ms: gaps between two tokens of a request, each counted once.
        tpot_ms: (last token - first token) / (tokens - 1) of each request.
        ttft_ms: arrival to first token.
        e2e_ms: arrival to last token, of finished requests.
        scheduling_delay_ms: arrival to the first step that computed a part of the request.
        late_share_cold, late_share_after: share of tokens after a first one that are late by
            the SLA's ``itl_ms`` (``late_share``), in the first ``COLD_S`` and from there on; None
            without one, or if no such token came then.
        stalls: gaps longer than ``Sla.stall_s``; None without ``itl_ms``.
        longest_gap_ms: None if there was no gap.
        j: late tokens and waits in one figure; less is better (``j_of``).
        sla_attainment: share of the requests that met the SLA (``meets``); None without one.
        goodput_per_s: requests that met the SLA, over the duration; None without one.
        steps: engine steps that computed something.
        step_model_mape: mean absolute error of predicted step times, by the model learned from the
            steps before, over the true ones, %; None if it was never identified.
        capacity_per_s: the highest rate that holds the SLA; None if it was not searched.
    """

    policy: str
    requests: int
    finished: int
    duration_s: float
    output_tokens_per_s: float
    preemptions: int
    mean_running: float
    kv_peak_frac: float
    itl_ms: Spread
    tpot_ms: Spread
    ttft_ms: Spread
    e2e_ms: Spread
    scheduling_delay_ms: Spread
    late_share_cold: float | None
    late_share_after: float | None
    stalls: int | None
    longest_gap_ms: float | None
    j: float | None
    sla_attainment: float | None
    goodput_per_s: float | None
    steps: int
    step_model_mape: float | None
    capacity_per_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A dict of primitives; ``capacity_per_s`` only if it was searched."""
        data = asdict(self)
        if self.capacity_per_s is None:
            del data["capacity_per_s"]
        return data


def summarise(policy: str, trace: Trace, sla: Sla) -> Summary:
    """The numbers of one policy's replay."""
    outcomes, gaps = trace.outcomes, trace.gaps.length_s
    finished = [o for o in outcomes if o.finished_s is not None]
    start_s = min((o.request.arrival_s for o in outcomes), default=0.0)
    duration_s = trace.end_s - start_s
    met = sum(meets(trace, sla)) if _asked(sla) else None
    step_s = trace.column("duration_s")
    return Summary(
        policy=policy,
        requests=len(outcomes),
        finished=len(finished),
        duration_s=duration_s,
        output_tokens_per_s=_per(sum(o.tokens for o in outcomes), duration_s),
        preemptions=sum(o.preemptions for o in outcomes),
        mean_running=_per(float(trace.column("running") @ step_s), duration_s),
        kv_peak_frac=float(trace.column("kv_used_tokens").max(initial=0)) / trace.kv_tokens,
        itl_ms=spread(gaps),
        tpot_ms=spread(_tpot_s(finished)),
        ttft_ms=spread(ttft_s(outcomes)),
        e2e_ms=spread(_e2e_s(finished)),
        scheduling_delay_ms=spread(scheduling_delay_s(outcomes)),
        late_share_cold=late_share(trace, sla, 0.0, COLD_S),
        late_share_after=late_share(trace, sla, COLD_S),
        stalls=None if sla.stall_s is None else int((gaps > sla.stall_s).sum()),
        longest_gap_ms=float(gaps.max()) * 1000 if len(gaps) else None,
        j=j_of(trace, sla),
        sla_attainment=None if met is None else _per(met, len(outcomes)),
        goodput_per_s=None if met is None else _per(met, duration_s),
        steps=len(trace.steps),
        step_model_mape=step_model_mape(trace),
    )


def late_share(
    trace: Trace, sla: Sla, from_s: float = 0.0, until_s: float = np.inf
) -> float | None:
    """Share of the tokens after a first one that are late.

    Args:
        from_s, until_s: tokens from the first up to, not including, the second time count; seconds
            since the replay began (with a warm-up, since that ended).

        Returns:
            0 to 1; None without ``itl_ms``, or without such a token.
    """
    if sla.itl_s is None:
        return None
    end_s = trace.gaps.end_s
    late = _late(trace, sla.itl_s)[(end_s >= from_s) & (end_s < until_s)]
    return float(late.mean()) if len(late) else None


def _late(trace: Trace, itl_s: float) -> NDArray[np.bool_]:
    """Whether each gap was longer than D."""
    late: NDArray[np.bool_] = trace.gaps.length_s > itl_s * TOLERANCE
    return late


def j_of(trace: Trace, sla: Sla) -> float | None:
    """J = max(late share / share allowed, 1) x mean TTFT, in seconds.

    Over all offered requests: without a first token, the wait until the end of the replay counts; a
    request that can never fit KV memory (400) does not count. Only requests that arrived and tokens
    that were sent after ``COLD_S`` count; without any, all do.

    Returns:
        None without ``itl_ms``, or if nothing was offered.
    """
    if sla.itl_s is None:
        return None
    late, waited_s = late_share(trace, sla, COLD_S), _waited_s(trace, COLD_S)
    if late is None or not waited_s:
        late, waited_s = late_share(trace, sla), _waited_s(trace, 0.0)
    if not waited_s:
        return None
    allowed = 1 - sla.percentile / 100
    return max((late or 0.0) / allowed, 1.0) * sum(waited_s) / len(waited_s)


def _waited_s(trace: Trace, from_s: float) -> list[float]:
    """Time to first token of each request since ``from_s``; the wait so far if it has none."""
    return [
        (trace.end_s if o.first_token_s is None else o.first_token_s) - o.request.arrival_s
        for o in trace.outcomes
        if not o.refused and o.request.arrival_s >= from_s
    ]


def meets(trace: Trace, sla: Sla) -> list[bool]:
    """Whether each request met the SLA.

    It is served to its end, its first token came within ``ttft_ms``, and at least ``percentile`` %
    of its later tokens are in time by ``itl_ms``; a target that is not set does not count.
    """
    gaps, outcomes = trace.gaps, trace.outcomes
    late = np.zeros(len(outcomes), dtype=np.int64)
    if sla.itl_s is not None:
        late = np.bincount(gaps.request[_late(trace, sla.itl_s)], minlength=len(outcomes))
    allowed = 1 - sla.percentile / 100
    ttft_limit_s = np.inf if sla.ttft_ms is None else sla.ttft_ms / 1000 * TOLERANCE
    return [
        o.finished_s is not None
        and o.first_token_s is not None
        and o.first_token_s - o.request.arrival_s <= ttft_limit_s
        and bool(late[number] <= allowed * (o.tokens - 1) * TOLERANCE)
        for number, o in enumerate(outcomes)
    ]


def _asked(sla: Sla) -> bool:
    return sla.itl_ms is not None or sla.ttft_ms is not None


def ttft_s(outcomes: Sequence[Outcome]) -> Floats:
    """Arrival to first token, seconds; requests without one are left out."""
    times = [o.first_token_s - o.request.arrival_s for o in outcomes if o.first_token_s is not None]
    return np.array(times)


def scheduling_delay_s(outcomes: Sequence[Outcome]) -> Floats:
    """Arrival to first step, seconds (Sarathi-Serve, section 2); requests without are left out."""
    times = [o.scheduled_s - o.request.arrival_s for o in outcomes if o.scheduled_s is not None]
    return np.array(times)


def _e2e_s(finished: Sequence[Outcome]) -> Floats:
    times = [o.finished_s - o.request.arrival_s for o in finished if o.finished_s is not None]
    return np.array(times)


def _tpot_s(finished: Sequence[Outcome]) -> Floats:
    times = [
        (o.finished_s - o.first_token_s) / (o.tokens - 1)
        for o in finished
        if o.tokens > 1 and o.finished_s is not None and o.first_token_s is not None
    ]
    return np.array(times)


def step_model_mape(trace: Trace) -> float | None:
    """Mean of |predicted - true| / true over predicted steps, %."""
    predicted, true = trace.column("predicted_s"), trace.column("duration_s")
    known = ~np.isnan(predicted)
    if not known.any():
        return None
    return float((np.abs(predicted[known] - true[known]) / true[known]).mean() * 100)


def spread(times_s: Floats) -> Spread:
    """Mean and percentiles of times in seconds, as milliseconds."""
    if not len(times_s):
        return Spread(None, None, None, None, None)
    percentiles_ms = np.percentile(times_s, (50, 90, 99, 99.9)) * 1000
    return Spread(float(times_s.mean()) * 1000, *percentiles_ms.tolist())


def _per(count: float, whole: float) -> float:
    return count / whole if whole > 0 else 0.0
