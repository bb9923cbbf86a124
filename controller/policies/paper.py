"""``paper``: Algorithms 1 and 2 of arXiv 2503.05248, line by line, and b = min(b_mem, b_SLA).

Both run once per report of a replica, with that replica's own state (``Memory``) and the lengths of
the whole group. Lines 6 and 15 also raise b to N^d, the number of decoding requests, so that none
is preempted: the Governor does that before every step, with the count of that step. N^d from a
report would hold for a window of many steps, in which a full batch is refilled up to N^d again and
again: a lowered cap would never drain.

Known weak points, kept because this policy is the paper's:

- Algorithm 1 with L0 as printed grows to B_max whatever the memory (see
  ``memory.printed_buffer``); ``l0: buffer``, ``memory: exact`` and ``memory: live`` do not.
- Its footprint E[l_in] + E[l_out] is a finished request's, not a running one's
  (``LengthMoments.mean_held``): a third too timid for fixed lengths, too bold for heavy tails.
- Algorithm 2 moves by about delta per window after a step change, winds up while the load does
  not reach the cap, and knows nothing of prefill.
"""

import math

from controller.config import BatchingConfig, PaperOptions
from controller.models import memory
from controller.models.lengths import LengthMoments
from controller.policies.base import Decision, Memory, Seen
from controller.records import EngineLimits, Reason, ReplicaReport

L0_PERIOD_S = 10.0  # how often L0 is computed anew
LIVE_FACTOR = 0.95  # share of the KV blocks, as in the authors' code
# PD fusion: B_min, alpha and delta of the token budget, tokens.
CHUNK_MIN, CHUNK_ALPHA, CHUNK_DELTA = 64, 64, 16


class MemoryBatching:
    """Algorithm 1: the batch that KV memory holds, for one replica.

    Args:
        options: which of the three forms, and the unit.
        epsilon_m: the accepted probability that memory overflows.
        b_max: B_max, requests; also b_0.

    Attributes:
        b, l0, l0_due_s: b_{t-1}, L0 and the time of its next computation.
    """

    def __init__(self, options: PaperOptions, epsilon_m: float, b_max: int) -> None:
        self._options = options
        self._theta = memory.theta(epsilon_m)
        self._b_max = b_max
        self.b = b_max
        self.l0: float | None = None
        self.l0_due_s = -math.inf

    def batch(self, report: ReplicaReport, lengths: LengthMoments, now_s: float) -> int:
        """b_t in requests, from 1 to B_max."""
        n_d, n_p = report.decoding, report.prefilling
        b = self.b  # line 3: b_t <- b_{t-1}
        if n_d > 0 and n_p > 0:  # line 4
            b = self._adjusted(report, lengths, now_s)  # line 5
            b = min(max(b, 1), self._b_max)  # line 6, except N^d
        self.b = b
        return b  # line 7

    def _adjusted(self, report: ReplicaReport, lengths: LengthMoments, now_s: float) -> int:
        unit = report.engine.block_tokens if self._options.units == "blocks" else 1
        eta = report.engine.kv_tokens // unit
        if self._options.memory == "live":
            used = report.kv_used_tokens / unit
            if not used or not report.running:
                return self.b
            return memory.published_batch(eta, used, report.running, LIVE_FACTOR)
        if not lengths.mean_total:
            return self.b
        # In blocks, a request's last block is half empty on average.
        mean = lengths.mean_total / unit + (0.5 if unit > 1 else 0.0)
        variance = lengths.variance_total / unit**2
        if self._options.memory == "exact":
            return memory.exact_batch(eta, mean, variance, self._theta)
        due_s = self.l0_due_s  # the clock of another controller may be hours off
        if self.l0 is None or not now_s < due_s <= now_s + L0_PERIOD_S:  # line 1, periodically
            self.l0 = self._buffer(eta, mean, variance)
            self.l0_due_s = now_s + L0_PERIOD_S
        return memory.linear_batch(eta, self.l0, mean)

    def _buffer(self, eta: float, mean: float, variance: float) -> float:
        if self._options.l0 == "printed":
            return memory.printed_buffer(self.b, eta, mean, variance, self._theta)
        return memory.safety_buffer(self.b, variance, self._theta)


class SlaBatching:
    """Algorithm 2: a noisy binary search for the batch whose decode latency meets the SLA.

    It searches a cap on requests, or (PD fusion, the third row of Table II) the token budget of a
    step. Letters are the paper's; the unit is the caller's.

    Args:
        d_sla_s, epsilon_d_s: the latency target and the dead band around it, seconds.
        b_min, b_max: the search space.
        alpha: the width kept between ``low`` and ``high``.
        delta: how far the end without a measurement moves, per window.
    """

    def __init__(
        self,
        *,
        d_sla_s: float,
        epsilon_d_s: float,
        b_min: int,
        b_max: int,
        alpha: int,
        delta: int,
    ) -> None:
        self._d_sla_s, self._epsilon_d_s = d_sla_s, epsilon_d_s
        self._b_min, self._b_max = b_min, b_max
        self._alpha, self._delta = alpha, delta
        self.low, self.high = float(b_min), float(b_max)  # line 1

    def batch(self, tau_s: float, b_bar: float) -> int:
        """b_t, B_min to B_max, from the recent mean decode latency (3) and decode batch (4)."""
        low, high = self.low, self.high
        if tau_s > self._d_sla_s + self._epsilon_d_s:  # line 5
            self.high = max(b_bar, low + self._alpha)  # line 6
            self.low = max(low - self._delta, self._b_min)  # line 7
        elif tau_s < self._d_sla_s - self._epsilon_d_s:  # line 8
            self.low = min(b_bar, high - self._alpha)  # line 9
            self.high = min(high + self._delta, self._b_max)  # line 10
        else:  # line 11
            self.high = min(b_bar + self._alpha // 2, self._b_max)  # line 12
            self.low = max(b_bar - self._alpha // 2, self._b_min)  # line 13
        b = math.floor((self.low + self.high) / 2)  # line 14
        return min(max(b, self._b_min), self._b_max)  # lines 15, except N^d, and 16


def decide(remembered: Memory, seen: Seen) -> tuple[Decision, Memory]:
    """b* = min(b_mem, b_SLA), section III-B; with ``size_chunk`` b_SLA is the token budget."""
    replica = _Replica(seen.config, seen.report.engine)
    replica.recall(remembered)
    decision = replica.decide(seen.report, seen.pool.lengths, seen.now_s)
    return decision, replica.remembered()


class _Replica:
    """State of both algorithms for one replica."""

    def __init__(self, config: BatchingConfig, engine: EngineLimits) -> None:
        self._options = options = config.paper
        self._b_min = config.max_running.min
        self._b_max = b_max = config.upper_bound(engine.max_num_seqs)
        self._memory = MemoryBatching(options, config.epsilon_m, b_max)
        self._sla: SlaBatching | None = None
        d_sla_s = config.sla.itl_s
        if d_sla_s is not None:
            chunk = options.size_chunk
            self._sla = SlaBatching(
                d_sla_s=d_sla_s,
                epsilon_d_s=options.epsilon_d_ms / 1000,
                b_min=CHUNK_MIN if chunk else self._b_min,
                b_max=engine.max_num_batched_tokens if chunk else b_max,
                alpha=CHUNK_ALPHA if chunk else options.alpha,
                delta=CHUNK_DELTA if chunk else options.delta,
            )
        # Before any measurement, the SLA's answer is the top of its search space.
        self._sla_answer = engine.max_num_batched_tokens if options.size_chunk else b_max

    def recall(self, remembered: Memory) -> None:
        if not remembered:
            return
        own = self._memory
        own.b, own.l0, own.l0_due_s = (remembered[key] for key in ("b", "l0", "l0_due_s"))
        self._sla_answer = remembered["sla_answer"]
        if self._sla:
            self._sla.low, self._sla.high = remembered["low"], remembered["high"]

    def remembered(self) -> Memory:
        own = {"b": self._memory.b, "l0": self._memory.l0, "l0_due_s": self._memory.l0_due_s}
        own["sla_answer"] = self._sla_answer
        return own | ({"low": self._sla.low, "high": self._sla.high} if self._sla else {})

    def decide(self, report: ReplicaReport, lengths: LengthMoments, now_s: float) -> Decision:
        b_mem = self._memory.batch(report, lengths, now_s)
        recent = report.recent
        if self._sla and recent.steps:
            b_bar = recent.tokens if self._options.size_chunk else recent.decodes
            self._sla_answer = self._sla.batch(recent.itl_s, b_bar)
        if self._options.size_chunk:
            return self._bounded(b_mem, "memory", self._sla_answer if self._sla else None)
        if self._sla and self._sla_answer < b_mem:
            return self._bounded(self._sla_answer, "sla")
        return self._bounded(b_mem, "memory")

    def _bounded(self, b: int, reason: Reason, token_budget: int | None = None) -> Decision:
        if not self._b_min < b < self._b_max:
            reason = "bound"
        return Decision(min(max(b, self._b_min), self._b_max), reason, token_budget)
