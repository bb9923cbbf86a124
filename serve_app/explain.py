"""``brimful explain``: what bound each replica of a running cluster, and the numbers behind it."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict

from controller.records import BatchLimits, ReplicaReport
from serve_app.status import add_arguments, read_snapshot, switched_off

__all__ = ["add_arguments", "run"]

BECAUSE = {
    "memory": "KV memory would overflow with one request more",
    "sla": "with one request more, steps would take longer than the SLA",
    "bound": "B_min, B_max or the engine's own size",
    "load": "nothing: all who came are served",
    "static": "the static setting",
    "start": "nothing yet: too little was measured",
}


def run(args: argparse.Namespace) -> int:
    snapshot = read_snapshot(args.address)
    if off := switched_off(snapshot):
        print(off)
    for group, known in snapshot["groups"].items():
        print(f"group {group}, policy {known['policy']}, {len(known['replicas'])} replicas")
        for replica_id, replica in sorted(known["replicas"].items()):
            for line in explain(replica_id, replica["report"], replica["limits"]):
                print(f"  {line}")
    return 0


def explain(replica_id: str, report: ReplicaReport, limits: BatchLimits) -> Iterator[str]:
    """One replica's last decision, in lines."""
    yield f"{replica_id}: cap {limits.max_running}, set by {BECAUSE[limits.reason]}"
    if report.mode == "fallback":
        yield "  it hears no controller and decides alone (fallback)"
    if not limits.enforce:
        yield "  advisory: computed and reported, not applied (enforce: false)"
    elif not report.enforced:
        yield "  control is switched off: vLLM runs at its own limits, these are only computed"
    yield from (f"  {line}" for line in _steps(asdict(report.bound_steps)))
    if report.lengths.n:
        lengths = report.lengths
        yield (
            f"  lengths of the last {lengths.n}: in {lengths.mean_input:.0f},"
            f" out {lengths.mean_output:.0f}, held while running {lengths.mean_live:.0f} tokens"
        )
    model = report.model or limits.model
    if model is not None:
        yield (
            f"  a step takes {model.c0 * 1e3:.2f} ms + {model.c1 * 1e3:.4f} per decode"
            f" + {model.c2 * 1e6:.3f} us per KV token + {model.c3 * 1e3:.4f} ms per prompt token"
        )
        if limits.sla_out_of_reach:
            alone_ms = model.predict_s(1, 0, 0, 0) * 1e3
            yield (
                f"  the SLA is out of reach: a step of one decode takes {alone_ms:.1f} ms,"
                f" {alone_ms * (1 + model.tail_frac):.1f} at the percentile"
            )
            yield "  so nothing is scaled by this replica: no number of replicas keeps that SLA"


def _steps(bound: dict[str, int]) -> Iterator[str]:
    total = sum(bound.values())
    if total:
        shares = (f"{name} {count / total:.0%}" for name, count in bound.items() if count)
        yield f"of {total} steps, bound by: {', '.join(shares)}"
