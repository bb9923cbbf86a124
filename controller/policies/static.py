"""``static``: vLLM as it is started, or one fixed cap. The control arm of every comparison."""

from controller.config import BatchingConfig
from controller.policies.base import Decision, Pool
from controller.records import ReplicaReport


class StaticPolicy:
    """The cap is ``max_running.max``, or what the engine was started with, always."""

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        return Decision(self._config.upper_bound(report.engine.max_num_seqs), "static")

    def forget(self, replica_id: str) -> None:
        """Nothing is kept."""
