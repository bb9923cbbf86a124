"""``static``: vLLM as it is started, or one fixed cap. The control arm of every comparison."""

from controller.config import BatchingConfig
from controller.policies.base import Decision, Policy, Pool
from controller.records import ReplicaReport


class StaticPolicy(Policy):
    """Cap ``max_running.max`` and budget ``static.max_num_batched_tokens``; unset: the engine's."""

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        cap = self._config.upper_bound(report.engine.max_num_seqs)
        return Decision(cap, "static", self._config.static.max_num_batched_tokens)
