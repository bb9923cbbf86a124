"""The part of ``adaptive`` in the controller: the cap that is reported."""

import math

from controller.capacity import sla_batch
from controller.config import BatchingConfig
from controller.models import memory
from controller.models.lengths import LengthMoments
from controller.policies.base import Decision, Policy, Pool
from controller.records import ReplicaReport

# Weight of the newest batch that the SLA allows, in that of the reported cap: the last 10, 5 s. It
# comes from an engine's own model of the last 200 steps, and as it is would tremble by 5%. What
# memory allows is not smoothed.
SMOOTHING = 0.1
# ... and while fewer have ended than tell their lengths to 15%: what was believed before is worse.
YOUNG, KNOWN_ENDS = 0.5, 50


class AdaptivePolicy(Policy):
    """The part in the controller: the cap by memory and the SLA for the group's mean request."""

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config
        self._theta = memory.theta(config.epsilon_m)
        self._sla_batches: dict[str, float] = {}  # by replica: the batch that the SLA allows

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        b_min = self._config.max_running.min
        b_max = self._config.upper_bound(report.engine.max_num_seqs)
        by_memory = self._memory_batch(report, pool.lengths)
        young = pool.lengths.n < KNOWN_ENDS
        by_sla = self._smoothed(report.replica_id, self._sla_batch(report, pool), young=young)
        cap = min(by_memory, by_sla)
        if not b_min < cap < b_max:
            return Decision(int(min(max(cap, b_min), b_max)), "bound")
        return Decision(int(cap), "memory" if by_memory <= by_sla else "sla")

    def _memory_batch(self, report: ReplicaReport, lengths: LengthMoments) -> float:
        """b with b m + theta s sqrt(b) <= eta (eq. 12), m and s those of a running request."""
        if not lengths.output or not report.engine.kv_tokens:
            return math.inf
        mean = lengths.mean_held + report.engine.block_tokens / 2
        return float(
            memory.exact_batch(report.engine.kv_tokens, mean, lengths.variance_held, self._theta)
        )

    def _sla_batch(self, report: ReplicaReport, pool: Pool) -> float:
        # The replica's own model is the newest; a newcomer has the group's to begin with.
        model = report.model or pool.model
        itl_s = self._config.sla.itl_s
        if itl_s is None or model is None or not pool.lengths.output:
            return math.inf
        return sla_batch(model, pool.lengths, report.itl_frac * itl_s)

    def _smoothed(self, replica_id: str, batch: float, *, young: bool) -> float:
        last = self._sla_batches.get(replica_id, batch)
        if math.isfinite(batch) and math.isfinite(last):
            batch = last + (YOUNG if young else SMOOTHING) * (batch - last)
        self._sla_batches[replica_id] = batch
        return batch

    def forget(self, replica_id: str) -> None:
        self._sla_batches.pop(replica_id, None)
