"""What a run at a rate must hold, what it broke, and when to give up."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.config import Sla
from simulator.replay.measure import TOLERANCE
from simulator.virtual.trace import Gap, Outcome, Trace
from simulator.workloads.lengths import Floats
from simulator.workloads.requests import Request

HOPELESS = 10  # times the allowed delay or late tokens: the run cannot recover
QUEUED_FRAC = 0.25  # of arrivals; with fewer waiting, a queue says nothing of the median
SLACK_S = 1.0  # of the middle of a run, which ends with the step of the last arrival


@dataclass(frozen=True, slots=True)
class Target:
    """What a rate must hold.

    Args:
        sla: ITL and TTFT, as far as set, at its percentile.
        max_median_delay_s: median scheduling delay; ignored if ``sla.ttft_ms`` is set.
        mean_itl: whether the mean ITL, not a percentile, has to be within the SLA.
        max_left_s: on average over the second half, at most the prompt tokens that arrive in this
            time, plus those of the longest prompt, may be left to compute. None, or if
            ``sla.ttft_ms`` is set: no bound. A median delay does not show a few long prompts that
            never begin.
    """

    sla: Sla
    max_median_delay_s: float = 2.0
    mean_itl: bool = False
    max_left_s: float | None = None

    @property
    def wait_s(self) -> float:
        """The allowed wait, from the TTFT or the median delay."""
        ttft_ms = self.sla.ttft_ms
        return self.max_median_delay_s if ttft_ms is None else ttft_ms / 1000


def fault_of(trace: Trace, target: Target) -> str | None:
    """What the second half of a replay that stopped at its last arrival broke first; None: nothing.

    In words, with the figure and the limit. The first half fills the engine. A request that still
    waits at the end counts with its wait so far.
    """
    outcomes, sla = trace.outcomes, target.sla
    half_s = (outcomes[0].request.arrival_s + trace.end_s) / 2
    late = [o for o in outcomes if o.request.arrival_s >= half_s and not o.refused]
    gaps_s = trace.gaps.length_s[trace.gaps.end_s >= half_s]
    if sla.itl_s is not None:
        percentile = None if target.mean_itl else sla.percentile
        if found := _beyond("time between tokens", gaps_s, percentile, sla.itl_s):
            return found
    if sla.ttft_ms is not None:
        waits = [_wait_s(o.first_token_s, o.request.arrival_s, trace.end_s) for o in late]
        return _beyond("time to first token", np.array(waits), sla.percentile, sla.ttft_ms / 1000)
    delays = np.array([_wait_s(o.scheduled_s, o.request.arrival_s, trace.end_s) for o in late])
    if found := _beyond("scheduling delay", delays, 50, target.max_median_delay_s):
        return found
    left_s = target.max_left_s
    return None if left_s is None else _left(trace, half_s, left_s)


def _left(trace: Trace, half_s: float, max_left_s: float) -> str | None:
    """The fault if too many prompt tokens are left, on average over the second half.

    A prompt's tokens are assumed to be computed evenly between its start and its first token.
    """
    outcomes = [o for o in trace.outcomes if not o.refused]
    came_s = trace.end_s - trace.outcomes[0].request.arrival_s
    if not outcomes or trace.end_s <= half_s:
        return None
    left = sum(_left_token_s(o, half_s, trace.end_s) for o in outcomes) / (trace.end_s - half_s)
    tokens = [o.request.input_tokens for o in outcomes]
    allowed = max_left_s * sum(tokens) / came_s + max(tokens)
    if left <= allowed * TOLERANCE:
        return None
    return f"{left:.0f} prompt tokens left to compute on average, allowed {allowed:.0f}"


def _left_token_s(outcome: Outcome, begin_s: float, end_s: float) -> float:
    """The integral of the prompt tokens that a request has left, tokens x seconds."""
    tokens = outcome.request.input_tokens
    start_s = end_s if outcome.scheduled_s is None else outcome.scheduled_s
    first_s, at_last = outcome.first_token_s, 0
    if first_s is None:
        first_s, at_last = end_s, max(tokens - outcome.computed_tokens, 0)
    waits_s = max(start_s - max(outcome.request.arrival_s, begin_s), 0.0)
    if first_s <= max(start_s, begin_s):
        return tokens * waits_s
    # The part of the line from start to first token that is inside, by its mean.
    inside_s = max(start_s, begin_s), first_s
    done = (sum(inside_s) / 2 - start_s) / (first_s - start_s)
    return tokens * waits_s + (tokens + (at_last - tokens) * done) * (inside_s[1] - inside_s[0])


def _beyond(
    criterion: str, times_s: Floats, percentile: float | None, limit_s: float
) -> str | None:
    if not len(times_s):
        return None
    found_s = float(times_s.mean() if percentile is None else np.percentile(times_s, percentile))
    if found_s <= limit_s * TOLERANCE:
        return None
    name = "mean" if percentile is None else f"p{percentile:g}"
    return f"{name} {criterion} {_time(found_s)}, allowed {_time(limit_s)}"


def _time(time_s: float) -> str:
    return f"{time_s:.3g} s" if time_s >= 1 else f"{time_s * 1000:.4g} ms"


def _wait_s(event_s: float | None, arrival_s: float, end_s: float) -> float:
    return (end_s if event_s is None else event_s) - arrival_s


class Watch:
    """Ends a run that can only break its target; called during the run.

    Late tokens of the second half are compared with all tokens that it may have: once they are too
    many for the percentile, later tokens cannot correct that. A run ends earlier in two cases: if
    its late tokens since its first quarter are ``HOPELESS`` times as many as allowed, after an
    eighth of the run; or if half of its queue has waited ``HOPELESS`` times as long as allowed.
    With ``max_left_s`` policies may serve in any order, and such a queue must hold ``QUEUED_FRAC``
    of all arrivals.

    Attributes:
        fault: why the run was ended.
    """

    def __init__(self, requests: Sequence[Request], target: Target) -> None:
        self.fault: str | None = None
        self._target = target
        first_s, last_s = requests[0].arrival_s, requests[-1].arrival_s
        self._half_s = (first_s + last_s) / 2
        self._quarter_s = first_s + (last_s - first_s) / 4
        self._judged_s = first_s + (last_s - first_s) * 3 / 8
        self._arrivals_s = [r.arrival_s for r in requests]
        self._left = sum(r.output_tokens - 1 for r in requests)
        self._read = self._seen = self._late = self._late_in_half = 0
        self._itl_s = None if target.mean_itl else target.sla.itl_s

    def __call__(
        self,
        now_s: float,
        arrivals_s: Sequence[float],
        gaps: Sequence[Gap],
    ) -> bool:
        """Whether to end the run: the clock, arrivals of waiting requests, and all gaps so far."""
        sla, wait_s = self._target.sla, HOPELESS * self._target.wait_s
        any_order = self._target.max_left_s is not None and sla.ttft_ms is None
        few = any_order and self._are_few(arrivals_s, now_s)
        if arrivals_s and not few and now_s - sorted(arrivals_s)[len(arrivals_s) // 2] > wait_s:
            self.fault = f"half of the queue has waited for {_time(wait_s)}"
        elif self._itl_s is not None:
            self._count(gaps, self._itl_s * TOLERANCE)
            allowed = 1 - sla.percentile / 100
            certain = self._late_in_half > allowed * self._left + 1
            hopeless = self._late > HOPELESS * allowed * self._seen
            if certain or (hopeless and now_s > self._judged_s):
                share = self._late / self._seen
                above = f"above {_time(self._itl_s)}"
                self.fault = f"{share:.1%} of the times between tokens {above}"
        return self.fault is not None

    def _are_few(self, waiting_s: Sequence[float], now_s: float) -> bool:
        """Whether so few arrivals wait that half may still have a short delay.

        A policy that does not serve in order of arrival may leave some and serve the others at
        once.
        """
        return len(waiting_s) < QUEUED_FRAC * bisect_right(self._arrivals_s, now_s)

    def _count(self, gaps: Sequence[Gap], longest_s: float) -> None:
        for length_s, end_s, _ in gaps[self._read :]:
            late = length_s > longest_s
            if end_s < self._half_s:
                self._left -= 1  # of the tokens that the second half may have
            if end_s >= self._quarter_s:
                self._seen += 1
                if late:
                    self._late += 1
                    self._late_in_half += end_s >= self._half_s + SLACK_S
        self._read = len(gaps)
