"""An engine in virtual time, as simple as it can be: what a policy has to steer."""

from collections.abc import Callable

import numpy as np

from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.models.arrays import Floats
from controller.records import BatchLimits, EngineLimits, EngineState, StepLimits, StepSample
from replicas.engine.governor import Governor
from tests.builders import engine

REQUEST_TOKENS = 100  # of input, and as many of output


class Plant:
    """One replica under a control loop; a step takes ``step_s(decodes)`` seconds.

    Each step one running request ends and as many start as the cap and the demand allow. It
    checks that no limit asks for a preemption or starves a decode.
    """

    def __init__(
        self,
        config: BatchingConfig,
        step_s: Callable[[int], float],
        size: EngineLimits | None = None,
    ) -> None:
        self.step_s = step_s
        self.size = size or engine(kv_tokens=10**6)
        self.loop = ControlLoop()
        self.governor = Governor(config, self.size, has_controller=True, now_s=0.0)
        self.running = 0
        self.now_s = 0.0
        self._config = config

    def window(self, demand: int) -> BatchLimits:
        """Run one exchange period with ``demand`` requests wanting to run, then exchange."""
        until_s = self.now_s + self._config.period_s
        while self.now_s < until_s:
            self._step(demand)
        report = self.governor.report(
            self._state(demand), self.now_s, "plant", "plants", *self._tables()
        )
        limits = self.loop.exchange(report, self._config, self.now_s)
        self.governor.apply(limits, self.now_s)
        return limits

    def _state(self, demand: int) -> EngineState:
        waiting = max(demand - self.running, 0)
        kv = self.running * 3 * REQUEST_TOKENS // 2
        return EngineState(self.running, waiting, kv, None, self.running, kv)

    def _tables(self) -> tuple[Floats, Floats]:
        """Every request has half of its answer."""
        half = REQUEST_TOKENS // 2
        one = [REQUEST_TOKENS + half + self.size.block_tokens, half, half, self.running]
        return np.array([one] * bool(self.running), dtype=float).reshape(-1, 4), np.zeros((0, 4))

    def _step(self, demand: int) -> StepLimits:
        waiting = max(demand - self.running, 0)
        step = self.governor.before_step(
            self._state(demand),
            self.now_s,
            lambda n: [(REQUEST_TOKENS, REQUEST_TOKENS)] * min(n, waiting),
            self._tables,
        )
        assert self.running <= step.max_running <= self.size.max_num_seqs
        assert step.token_budget >= self.running * self.size.tokens_per_decode
        started = max(min(step.max_running, demand) - self.running, 0)
        decodes, prefill = self.running, started * REQUEST_TOKENS
        self.running += started
        duration_s = self.step_s(decodes)
        kv = decodes * 3 * REQUEST_TOKENS // 2
        sample = StepSample(decodes, kv, prefill, prefill * REQUEST_TOKENS // 2, duration_s)
        self.now_s += duration_s
        self.governor.after_step(sample, prefills=started)
        if self.running:
            self.running -= 1
            self.governor.finished(REQUEST_TOKENS, REQUEST_TOKENS)
        return step
