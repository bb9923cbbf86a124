"""The arguments of ``brimful replay`` for several engines, and their roles."""

import argparse
from dataclasses import dataclass

from controller.errors import ConfigError
from controller.roles import Transfer
from simulator.replay.values import count, number
from simulator.virtual.plan import Plan

MOST_ENGINES = 64  # of one process: a step of each takes a millisecond
KV_BYTES, GBIT_S, LATENCY_MS = 327_680.0, 200.0, 5.0
ALLOWED = "auto, aggregated, or P:D, prefill and decode engines, each at least 1"
# The agreement is for one engine after the other, and what is drawn is one engine's.
ALONE = ("find_capacity", "speculate", "async_scheduling", "swap")
LINK = ("kv_bytes_per_token", "link_gbit_s", "link_latency_ms")
KINDS = ("scheduler", "rival", "reserved")


@dataclass(frozen=True, slots=True)
class Roles:
    """A fleet that was asked for.

    Args:
        prefill: engines that compute prompts for the others; None: as many as are best (auto).
    """

    engines: int
    prefill: int | None
    transfer: Transfer

    @property
    def name(self) -> str:
        """As in ``--roles``."""
        if self.prefill is None:
            return "auto"
        return f"{self.prefill}:{self.engines - self.prefill}" if self.prefill else "aggregated"


def add_roles(group: argparse._ArgumentGroup) -> None:
    """What a fleet is, and how KV gets from engine to engine."""
    group.add_argument(
        "--engines",
        type=count(MOST_ENGINES),
        metavar="N",
        help="so many engines behind the router (default: one without)",
    )
    group.add_argument(
        "--roles",
        metavar="ROLES",
        help="aggregated: every engine computes prompts and decodes (default); P:D: so many"
        " compute prompts and hand them over; auto: as many as carry most, and prompts go direct"
        " where that is sooner",
    )
    group.add_argument(
        "--kv-bytes-per-token",
        type=number(1, 1e9),
        metavar="BYTES",
        help=f"KV of a token (default: {KV_BYTES:,.0f}, a 70B model with GQA)",
    )
    group.add_argument(
        "--link-gbit-s",
        type=number(1e-3, 1e6),
        metavar="GBIT_S",
        help=f"of each engine's network card, in each direction (default: {GBIT_S:g})",
    )
    group.add_argument(
        "--link-latency-ms",
        type=number(0, 60_000),
        metavar="MS",
        help=f"of a transfer, whatever its size (default: {LATENCY_MS:g})",
    )


def read_roles(args: argparse.Namespace, plans: tuple[Plan, ...]) -> Roles | None:
    """The fleet that the arguments ask for; None: one engine.

    Raises:
        ConfigError: naming what is wrong, or arguments that contradict each other.
    """
    if args.engines is None:
        given = ("roles",) if args.swap else ("roles", *LINK)
        asked = [_option(name) for name in given if getattr(args, name) is not None]
        if asked:
            raise ConfigError([f"{asked[0]}: needs --engines, the number of engines"])
        return None
    found = [
        f"{_option(name)}: is not allowed with --engines: one engine alone"
        for name in ALONE
        if getattr(args, name)
    ]
    found += [
        f"policy {plan.spec}: is not allowed with --engines: a scheduler of vLLM's kind"
        for plan in plans
        if plan.kind not in KINDS
    ]
    roles = args.roles or "aggregated"
    prefill = _prefill(roles, args.engines)
    if isinstance(prefill, str):
        found.append(prefill)
        prefill = 0
    if roles == "auto" and args.sla_itl_ms is None:
        found.append("roles: auto needs --sla-itl-ms: it is what keeps prompts from decodes")
    if found:
        raise ConfigError(found)
    return Roles(args.engines, prefill, transfer_of(args))


def transfer_of(args: argparse.Namespace) -> Transfer:
    """What the arguments of ``add_link`` say, with their defaults."""
    kv_bytes, gbit_s, latency_ms = (
        default if value is None else value
        for value, default in (
            (args.kv_bytes_per_token, KV_BYTES),
            (args.link_gbit_s, GBIT_S),
            (args.link_latency_ms, LATENCY_MS),
        )
    )
    return Transfer(kv_bytes, gbit_s * 1e9 / 8, latency_ms / 1000)


def _option(name: str) -> str:
    return name.replace("_", "-")


def _prefill(roles: str, engines: int) -> int | str | None:
    """How many prefill engines; None: auto. What is wrong, where something is."""
    if roles in ("auto", "aggregated"):
        return None if roles == "auto" else 0
    parts = roles.split(":")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        return f"roles: {roles!r} is not allowed: {ALLOWED}"
    prefill, decode = map(int, parts)
    if prefill + decode != engines:
        return f"roles: {roles} is not allowed with --engines {engines}: as many together"
    return prefill
