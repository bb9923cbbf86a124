"""Publishes autoscaling's decisions: Ray's metrics, and a line for ``status`` and ``explain``.

The policy runs in Serve's controller, which nothing here may block. Ray keeps metrics in the
process; a thread writes the line to the cluster's store.
"""

import contextlib
import json
import queue
import sys
import threading
import time
import weakref
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.experimental import internal_kv
from ray.util.metrics import Gauge

from serve_app.scaling.reasons import REASONS, Decision

NAMESPACE, PREFIX = "brimful", "scaling:"
EVERY_S = 5.0  # shortest time between two writes of the line
FRESH_S = 60.0  # an older line was left by a removed deployment
TAGS = ("application", "deployment")

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # it ends with the policy


@dataclass(frozen=True)
class Told(Decision):
    """One deployment's last decision, before Ray Serve's delays and factors.

    Args:
        running, target: replicas that run, and that Ray Serve is to have.
        unix_s: when that was decided.
    """

    application: str
    deployment: str
    running: int
    target: int
    unix_s: float

    def sentence(self) -> str:
        """The decision in a line."""
        wanted = f"{self.desired} replica{'s' if self.desired != 1 else ''} wanted"
        of = f"{self.deployment} of {self.application}"
        return f"Autoscaling of {of}: {wanted}, {self.running} running: {self.words}."


class ScalingExport:
    """Publishes what one policy decides if Ray runs; else does nothing."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}
        self._lines: queue.SimpleQueue[Told | None] = queue.SimpleQueue()
        self._written_s: float | None = None

    def tell(self, ctx: Any, decision: Decision, unix_s: float) -> None:
        """Export one decision; returns at once.

        Args:
            ctx: Ray Serve's ``AutoscalingContext``.
        """
        if not ray.is_initialized():
            return
        told = Told(
            application=str(ctx.app_name),
            deployment=str(ctx.deployment_name),
            running=int(ctx.current_num_replicas),
            target=int(ctx.target_num_replicas),
            unix_s=unix_s,
            **asdict(decision),
        )
        self._measure(told)
        if self._written_s is None:
            self._start()
        if self._written_s is None or not 0 <= unix_s - self._written_s < EVERY_S:
            self._written_s = unix_s
            self._lines.put(told)

    def _measure(self, told: Told) -> None:
        tags = {"application": told.application, "deployment": told.deployment}
        values = {
            "brimful_desired_replicas": float(told.desired),
            "brimful_scaling_demand_requests_per_second": told.demand_per_s,
            "brimful_scaling_capacity_requests_per_second": told.capacity_per_s,
            "brimful_replica_start_seconds": told.start_s,
        }
        for name, value in values.items():
            # A gauge keeps its last value, but an unknown value must not look known.
            self._gauge(name, TAGS).set(0.0 if value is None else value, tags)
        for reason in REASONS:
            gauge = self._gauge("brimful_scaling_reason", (*TAGS, "reason"))
            gauge.set(float(reason == told.reason), {**tags, "reason": reason})

    def _gauge(self, name: str, tags: tuple[str, ...]) -> Gauge:
        if name not in self._gauges:
            self._gauges[name] = Gauge(name, ABOUT[name], tags)
        return self._gauges[name]

    def _start(self) -> None:
        thread = threading.Thread(
            target=_write, args=(self._lines,), name="brimful-scaling", daemon=True
        )
        thread.start()
        # Ray Serve drops a policy for a changed configuration.
        weakref.finalize(self, self._lines.put, None)


def _write(lines: "queue.SimpleQueue[Told | None]") -> None:
    """Write lines until None comes; if the store does not answer, a line is lost."""
    while (told := lines.get()) is not None:
        key = f"{PREFIX}{told.application}:{told.deployment}"
        with contextlib.suppress(Exception):
            internal_kv._internal_kv_put(key, json.dumps(asdict(told)), namespace=NAMESPACE)


def read_told(now_unix_s: float | None = None) -> list[Told]:
    """The last decision of every deployment that scales, in the connected cluster."""
    now_unix_s = time.time() if now_unix_s is None else now_unix_s
    found = []
    for key in sorted(internal_kv._internal_kv_list(PREFIX, namespace=NAMESPACE)):
        line = internal_kv._internal_kv_get(key, namespace=NAMESPACE)
        with contextlib.suppress(TypeError, ValueError):  # of another version
            told = Told(**json.loads(line))
            if abs(now_unix_s - told.unix_s) <= FRESH_S:
                found.append(told)
    return found


ABOUT = {
    "brimful_desired_replicas": "Replicas that autoscaling wants, within the bounds.",
    "brimful_scaling_demand_requests_per_second": "Demand, in requests of the size that"
    " capacity counts.",
    "brimful_scaling_capacity_requests_per_second": "A replica's SLA capacity; 0: unknown.",
    "brimful_replica_start_seconds": "Time that a replica's start is expected to take.",
    "brimful_scaling_reason": "1 for what set the number of replicas, 0 for the rest.",
}
