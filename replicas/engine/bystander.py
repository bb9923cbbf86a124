"""vLLM's own scheduler, for a vLLM that lacks what control needs.

Only the channel works: a report tells how many requests run and wait. No limits are applied.
"""

import math
import time
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from controller.config import parse_batching
from controller.fail_open import Guard
from controller.records import BatchLimits, EngineLimits, EngineState, from_wire, to_wire
from replicas.engine import channel
from replicas.engine.governor import LOCAL, Governor
from replicas.engine.hooks import take_back
from replicas.engine.settings import parse_settings


class Bystander(AsyncScheduler):
    """vLLM's scheduler with the channel's methods; changes no step.

    Raises:
        ConfigError: ``additional_config.brimful`` is wrong.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        sizes = self.vllm_config.scheduler_config
        if not sizes.async_scheduling:
            take_back(self, AsyncScheduler)
        settings = parse_settings(self.vllm_config.additional_config)
        self.guard = Guard(self.now_s())
        self.governor = Governor(
            settings.batching,
            EngineLimits(sizes.max_num_seqs, sizes.max_num_batched_tokens, 0, 1),
            has_controller=settings.leased,
            now_s=self.now_s(),
            group=settings.group or LOCAL,
            untested_since_ms=math.inf,
            guard=self.guard,
        )

    def now_s(self) -> float:
        """The engine's clock."""
        return time.monotonic()

    def exchange(self, limits: Any, replica_id: str, group: str, itl_frac: float = 1.0) -> Any:
        """Return a report (wire form) of what is known; limits are not applied."""
        now_s = self.now_s()
        if limits is not None:
            self.governor.apply(from_wire(BatchLimits, limits), now_s)
        running, waiting = self.get_request_counts()
        report = self.governor.report(EngineState(running, waiting, 0), now_s, replica_id, group)
        return to_wire(report)

    def configure(self, batching: dict[str, Any]) -> None:
        """Report for another batching block."""
        self.governor.configure(parse_batching(batching))


channel.install()
