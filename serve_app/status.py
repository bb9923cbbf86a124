"""``brimful status``: what the batch controller of a running cluster knows, as a table."""

import argparse
from typing import Any

from controller.errors import BrimfulError
from controller.records import BatchLimits, ReplicaReport


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

    result = Table(title=f"Batch controller {snapshot['version']}", caption=switched_off(snapshot))
    names = ("group", "policy", "replica", "heard", "mode", "control", "cap", "bound by", "running")
    for name in names:
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
                control_word(report, limits),
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


def control_word(report: ReplicaReport, limits: BatchLimits) -> str:
    """Whether its limits are applied: on, off (switched), or advice (``enforce: false``)."""
    if report.enforced:
        return "on"
    return "off" if limits.enforce else "advice"


def switched_off(snapshot: dict[str, Any]) -> str | None:
    """The groups for which control is switched off, in a sentence; None where it is for none."""
    groups = [name for name, known in snapshot["groups"].items() if not known["on"]]
    if not groups:
        return None
    of_all = len(groups) == len(snapshot["groups"])
    where = "all groups" if of_all else ", ".join(groups)
    return f"Control is switched off for {where}; `brimful enforce on` ends that."


def _capacity(limits: BatchLimits) -> str:
    if limits.sla_out_of_reach:
        return "SLA out of reach"
    return "-" if limits.capacity_per_s is None else f"{limits.capacity_per_s:.1f}"
