"""``brimful status``: what the batch controller of a running cluster knows, as a table."""

import argparse
from typing import Any

from controller.errors import BrimfulError
from controller.records import BatchLimits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--address", default="auto", help="Ray's address (default: this machine's)")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    Console().print(table(read_snapshot(args.address)))
    return 0


def read_snapshot(address: str) -> dict[str, Any]:
    """``BatchController.snapshot`` of the cluster at this Ray address.

    Raises:
        BrimfulError: no cluster is there, or no controller in it.
    """
    import ray

    from controller.fleet.actor import find_controller

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        snapshot: dict[str, Any] = ray.get(find_controller().snapshot.remote(), timeout=10)
    except (ConnectionError, ValueError) as error:
        raise BrimfulError(f"no batch controller at {address!r}: {error}") from None
    return snapshot


def table(snapshot: dict[str, Any]) -> Any:
    """``BatchController.snapshot`` as a rich table, one row per replica."""
    from rich.table import Table

    result = Table(title=f"Batch controller {snapshot['version']}")
    for name in ("group", "policy", "replica", "heard", "mode", "cap", "bound by", "running"):
        result.add_column(name)
    for name in ("waiting", "KV use", "ITL p99 ms", "preempted", "capacity/s"):
        result.add_column(name, justify="right")
    for group, known in snapshot["groups"].items():
        for replica_id, replica in sorted(known["replicas"].items()):
            report, limits = replica["report"], replica["limits"]
            p99_s = report.itl.percentile_s(99)
            result.add_row(
                group,
                known["policy"],
                replica_id,
                f"{replica['age_s']:.1f} s ago",
                report.mode,
                str(limits.max_running),
                limits.reason,
                str(report.running),
                str(report.waiting),
                f"{report.kv_frac:.0%}",
                "-" if p99_s is None else f"{p99_s * 1000:.1f}",
                str(report.preemptions),
                _capacity(limits),
            )
    return result


def _capacity(limits: BatchLimits) -> str:
    if limits.sla_out_of_reach:
        return "SLA out of reach"
    return "-" if limits.capacity_per_s is None else f"{limits.capacity_per_s:.1f}"
