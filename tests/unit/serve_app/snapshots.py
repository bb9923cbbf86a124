"""Snapshots of real control loops: one replica, or a fleet that is hard to fit into a terminal."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.records import BoundSteps, ReplicaReport
from serve_app.scaling_export import Told
from tests.builders import (
    batching,
    engine,
    histogram_of,
    linear_steps,
    moments_of,
    report,
    rows_of,
)

LONG_GROUP = "meta-llama/Llama-3.3-70B-Instruct-FP8-dynamic-0a1b2c3d"
LONG_REPLICA = "a-replica-with-a-very-long-name-of-more-than-forty-characters"

SCALED = Told(
    application="llm",
    deployment="BrimfulServer:m",
    running=2,
    target=2,
    desired=3,
    reason="capacity",
    words="20.0 requests/s come, a replica carries 8.0 (+-4%) inside the SLA",
    demand_per_s=20.0,
    capacity_per_s=8.0,
    capacity_error_frac=0.04,
    start_s=100.0,
    unix_s=1.0,
)


def snapshot_of(
    *exchanges: tuple[ReplicaReport, BatchingConfig],
    later_s: float = 2.5,
    switched: str | None = None,
    refused: Sequence[dict[str, Any]] = (),
    scaling: Sequence[Told] = (),
) -> dict[str, Any]:
    """What the actor hands out ``later_s`` after these exchanges.

    Args:
        switched: the group for which control was switched off then.
        refused: replicas whose reports were refused.
        scaling: what autoscaling decided last, by deployment.
    """
    loop = ControlLoop()
    for report_, config in exchanges:
        sent = {one.name: getattr(report_, one.name) for one in fields(ReplicaReport)}
        loop.exchange(ReplicaReport(**sent), config, 10.0)
    if switched is not None:
        loop.switch(enforce=False, group=switched, unix_s=1.0)
    known = loop.snapshot(10.0 + later_s)
    told = {
        "version": "0.1.0+0a1b2c3d",
        "started_unix_s": 1.0,
        "refused": list(refused),
        "scaling": list(scaling),
    }
    return {**told, **known}


def busy(**changes: Any) -> ReplicaReport:
    """A replica with large numbers everywhere: 20 ms and 0.2 ms per decode, 312 in and 188 out."""
    known: dict[str, Any] = {
        "replica_id": "x7k2m9qa",
        "itl": histogram_of([0.02] * 90 + [1.2] * 10),
        "ttft": histogram_of([12.0]),
        "lengths": moments_of([(312, 188)] * 500),
        "rows": rows_of(linear_steps()),
        "running": 1024,
        "waiting": 13_345,
        "finished": 1_234_567,
        "preemptions": 12_345,
        "kv_used_tokens": 20_000,
        "bound_steps": BoundSteps(1000, 3000, 10, 5000, 20),
    }
    return report(**{**known, **changes})


def fleet(later_s: float = 2.5) -> dict[str, Any]:
    """Eight groups: long names, an SLA out of reach, memory, static, fallback, advice, off."""
    sla = batching(policy="adaptive", sla={"itl_ms": 40})
    large = engine(kv_tokens=3_000_000)
    return snapshot_of(
        (busy(group=LONG_GROUP), sla),
        (busy(group=LONG_GROUP, replica_id=LONG_REPLICA, seq=2), sla),
        (busy(group="unlimited", engine=large), batching(policy="adaptive", sla={"itl_ms": 10})),
        (busy(group="sla", engine=large), sla),
        (busy(group="paper"), batching(policy="paper")),
        (report(group="static"), batching(policy="static", max_running={"max": 12})),
        (report(group="fallback", mode="fallback"), sla),
        (report(group="advice", enforced=False), batching(policy="adaptive", enforce=False)),
        (report(group="switched", enforced=False), sla),
        later_s=later_s,
        switched="switched",
    )
