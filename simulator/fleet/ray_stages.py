"""Ray Serve's own autoscaling in virtual time: the installed class, on a virtual clock.

``DeploymentAutoscalingState`` aggregates what replicas publish, calls the policy with its
``AutoscalingContext`` and applies factors, delays and bounds; nothing of it is reimplemented. It
reads the module ``time``, which is replaced by a clock during its calls.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray.serve._private.autoscaling_state as autoscaling_state
import ray.serve.autoscaling_policy as autoscaling_policy
from ray.serve._private.common import (
    RUNNING_REQUESTS_KEY,
    DeploymentHandleSource,
    DeploymentID,
    HandleMetricReport,
    ReplicaID,
    ReplicaMetricReport,
    TimeStampedValue,
)
from ray.serve._private.config import DeploymentConfig
from ray.serve._private.deployment_info import DeploymentInfo
from ray.serve.config import AutoscalingConfig

Sample = Mapping[str, float]
READ_IN = (autoscaling_state, autoscaling_policy)  # modules of Ray Serve that read the time


class Clock:
    """Replaces the module ``time``: both of its clocks are the virtual one."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s


@contextmanager
def on(clock: Clock) -> Iterator[None]:
    """Let Ray Serve's autoscaling read this clock."""
    real: list[Any] = [module.time for module in READ_IN]
    for module in READ_IN:
        module.time = clock
    try:
        yield
    finally:
        for module, time in zip(READ_IN, real, strict=True):
            module.time = time


class RayAutoscaler:
    """Decides the replicas of one deployment, like Ray Serve's controller.

    Args:
        autoscaling: Ray Serve's ``autoscaling_config``, with the policy in it.
        replicas: at the beginning.
    """

    def __init__(self, autoscaling: Mapping[str, Any], replicas: int, clock: Clock) -> None:
        self._clock = clock
        self._deployment = DeploymentID("fleet", "fleet")
        self.config = AutoscalingConfig.model_validate(dict(autoscaling))
        self._state = autoscaling_state.DeploymentAutoscalingState(self._deployment)
        info = DeploymentInfo(
            deployment_config=DeploymentConfig(autoscaling_config=self.config),
            replica_config=None,
            start_time_ms=0,
            deployer_job_id="",
        )
        with on(clock):
            self.target = self._state.register(info, replicas)
        self._series: dict[str, dict[str, deque[TimeStampedValue]]] = {}  # by replica and name
        self._ids: dict[str, ReplicaID] = {}
        self._queued: deque[TimeStampedValue] = deque()

    @property
    def state(self) -> dict[str, Any]:
        """The policy's state between two decisions."""
        return dict(self._state._policy_state or {})

    def observe(self, samples: Mapping[str, Sample], queued: float) -> None:
        """Take what each running replica publishes; ``RUNNING_REQUESTS_KEY`` is Ray's own.

        Args:
            queued: requests that no replica has taken.
        """
        now_s, since_s = self._clock.now_s, self._clock.now_s - self.config.look_back_period_s
        self._series = {name: self._series.get(name, {}) for name in samples}
        self._ids = {n: self._ids.get(n) or ReplicaID(n, self._deployment) for n in samples}
        self._state.update_running_replica_ids(list(self._ids.values()))
        for name, sample in samples.items():
            own = self._series[name]
            for key, value in sample.items():
                _recent(own.setdefault(key, deque()), TimeStampedValue(now_s, value), since_s)
            series = {key: list(own[key]) for key in sample}
            self._state.record_request_metrics_for_replica(
                ReplicaMetricReport(self._ids[name], series, now_s)
            )
        _recent(self._queued, TimeStampedValue(now_s, queued), since_s)
        self._state.record_request_metrics_for_handle(
            HandleMetricReport(
                deployment_id=self._deployment,
                handle_id="router",
                actor_id="",
                handle_source=DeploymentHandleSource.UNKNOWN,
                queued_requests=list(self._queued),
                metrics={},
                timestamp=now_s,
            )
        )

    def decide(self) -> int:
        """The new target; ``target`` is the one before."""
        with on(self._clock):
            decided = int(self._state.get_decision_num_replicas(self.target))
            if decided > self.target:
                self._state.record_scale_up()
            elif decided < self.target:
                self._state.record_scale_down()
        self.target = decided
        return decided


def _recent(series: deque[TimeStampedValue], newest: TimeStampedValue, since_s: float) -> None:
    series.append(newest)
    while series[0].timestamp < since_s:
        series.popleft()


ONGOING: str = RUNNING_REQUESTS_KEY
