"""The arguments of ``brimful replay`` for several engines, and for KV transfers."""

import argparse
from collections.abc import Iterator, Sequence

from controller.roles import Transfer
from simulator.replay.values import count, number
from simulator.virtual.plan import Plan

MOST_ENGINES = 64  # in one process; a step of each takes a millisecond
# Options for one engine; searches run one engine after another.
ALONE = ("find_capacity", "speculate", "async_scheduling", "swap")
KINDS = ("scheduler", "rival", "reserved")


def add_fleet(group: argparse._ArgumentGroup) -> None:
    """The number of engines."""
    group.add_argument(
        "--engines",
        type=count(MOST_ENGINES),
        metavar="N",
        help="number of engines behind the router (default: one without a router)",
    )


def add_link(group: argparse._ArgumentGroup) -> None:
    """The speed of KV transfers from host memory or another engine."""
    group.add_argument(
        "--kv-bytes-per-token",
        type=number(1, 1e9),
        default=327_680.0,
        metavar="BYTES",
        help="KV of a token (default: %(default)s, a 70B model with GQA)",
    )
    group.add_argument(
        "--link-gbit-s",
        type=number(1e-3, 1e6),
        default=200.0,
        metavar="GBIT_S",
        help="in each direction (default: %(default)s)",
    )
    group.add_argument(
        "--link-latency-ms",
        type=number(0, 60_000),
        default=5.0,
        metavar="MS",
        help="of a transfer, whatever its size (default: %(default)s)",
    )


def fleet_problems(args: argparse.Namespace, plans: Sequence[Plan]) -> Iterator[str]:
    """Arguments that contradict ``--engines``."""
    for name in ALONE:
        if getattr(args, name):
            yield f"{name.replace('_', '-')}: is not allowed with --engines: one engine alone"
    for plan in plans:
        if plan.kind not in KINDS:
            yield f"policy {plan.spec}: is not allowed with --engines: a scheduler of vLLM's kind"


def transfer_of(args: argparse.Namespace) -> Transfer:
    """The transfer of ``add_link``'s arguments."""
    gbit_s, latency_ms = args.link_gbit_s, args.link_latency_ms
    return Transfer(args.kv_bytes_per_token, gbit_s * 1e9 / 8, latency_ms / 1000)
