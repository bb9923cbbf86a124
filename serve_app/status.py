"""``brimful status``: limits and load of each replica of a running cluster."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.errors import BrimfulError
from serve_app.options import add_address, add_json, add_wide, number
from serve_app.snapshot import (
    ReplicaStatus,
    connect,
    death_lines,
    read_snapshot,
    refused_lines,
    replicas_of,
    stalled,
    status_json,
    switched_off,
)
from serve_app.tables import console_for, new_table

WATCH_S = 2.0
ABOUT = (
    "Show the limits and the load of each replica of a running cluster: the limit on running"
    " requests (cap), what set it, requests running and waiting, KV memory in use, the 99th"
    " percentile of the time between tokens (ITL) since its engine started, and the requests/s"
    " that it carries inside the SLA."
)
EPILOG = (
    "control: on - by the controller; fallback - by the replica itself, as no limits reached"
    " it in time; off - switched off, limits are computed and not applied; advice - not"
    " applied because of batching.enforce: false. set by: memory, sla, bound (max_running or"
    " the engine's size), load (no request had to wait), static, start (too little was"
    " measured yet). role (only with batching.roles): mixed - prompts and decodes; prefill -"
    " prompts for others; to prefill - prefill once its last decode has ended, or once as many"
    " requests wait as run; leaving - finishes its requests and is removed. `brimful explain`"
    " says more."
)

Show = Callable[[dict[str, Any]], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful status``."""
    parser.description, parser.epilog = ABOUT, EPILOG
    add_address(parser)
    add_wide(parser)
    add_json(parser)
    parser.add_argument(
        "--watch",
        nargs="?",
        const=WATCH_S,
        type=number("seconds from 0.1 to 3600", 0.1, 3600),
        metavar="SECONDS",
        help=f"repeat until Ctrl-C, every S seconds (default: {WATCH_S:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Print it, once or until Ctrl-C.

    Raises:
        BrimfulError: there is no cluster, or no controller that answers.
    """
    connect(args.address)

    def show(snapshot: dict[str, Any]) -> None:
        if args.json:
            print(json.dumps(status_json(snapshot)), flush=True)
        else:
            print_status(snapshot, wide=args.wide)

    if args.watch is None:
        show(read_snapshot())
    else:
        watch(read_snapshot, show, args.watch)
    return 0


def watch(
    read: Callable[[], dict[str, Any]],
    show: Show,
    period_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show the state repeatedly until Ctrl-C; waits while the controller does not answer."""
    screen = Console()
    try:
        while True:
            try:
                snapshot = read()
            except BrimfulError as error:
                print(f"error: {error}", file=sys.stderr, flush=True)
            else:
                screen.clear()  # does nothing if it is not a terminal
                show(snapshot)
            sleep(period_s)
    except KeyboardInterrupt:
        return


def print_status(snapshot: dict[str, Any], *, wide: bool) -> None:
    """A table per group on standard output, and a line for each replica that is late."""
    plain = Console(highlight=False)
    plain.print(f"Batch controller {snapshot['version']}", markup=False)
    if off := switched_off(snapshot):
        plain.print(Text(off, overflow="fold"))
    replicas, refused = replicas_of(snapshot), refused_lines(snapshot)
    if not replicas and not refused:
        plain.print("No replica has reported yet.")
    for (group, policy), members in groupby(replicas, lambda r: (r.group, r.policy)):
        ours = list(members)
        plain.print()
        plain.print(Text(f"group {group}, policy {policy}, {_count(len(ours))}", overflow="fold"))
        table = table_of(ours, wide=wide)
        console_for(table, wide=wide).print(table)
        for replica in ours:
            if replica.late:
                late = f"{replica.replica}: no report for {replica.reported_s_ago:.0f} s"
                plain.print(Text(late, overflow="fold"))
            if replica.stalls and replica.itl_longest_ms is not None:
                said = stalled(replica.stalls, replica.itl_longest_ms / 1000)
                plain.print(Text(f"{replica.replica}: {said}", overflow="fold"))
    told = [one.sentence() for one in snapshot["scaling"]]
    deaths = death_lines(snapshot)
    if refused or told or deaths:
        plain.print()
    for line in (*told, *refused, *deaths):
        plain.print(Text(line, overflow="fold"))


def _count(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas"


def table_of(replicas: list[ReplicaStatus], *, wide: bool) -> Table:
    """One row per replica; few enough columns for 80 characters, or all of them."""
    with_roles = any(r.role is not None for r in replicas)
    numbers = ["cap", "running", "waiting", "KV", "ITL p99\nms"]
    if wide:
        numbers += [
            "ITL p50\nms",
            "longest\nms",
            "stalls",
            "TTFT p99\nms",
            "busy",
            "tokens\na step",
            "arrivals\n/s",
            "finished",
        ]
        numbers += ["pre-\nempted", "over-\nruled", "report\ns ago"]
        numbers += ["prompts\nfor others"] if with_roles else []
    names = ("replica", *(("role",) if with_roles else ()), "control", "set by")
    table = new_table(names, (*numbers, "capacity\nrequests/s"))
    for r in replicas:
        cells = [r.replica, *([r.role or "-"] if with_roles else []), r.control, r.set_by]
        cells += [str(r.max_running), str(r.running)]
        cells += [str(r.waiting), f"{r.kv_frac:.0%}", _number(r.itl_p99_ms)]
        if wide:
            budget = "-" if r.token_budget is None else str(r.token_budget)
            stalls = "-" if r.stalls is None else str(r.stalls)
            cells += [_number(r.itl_p50_ms), _number(r.itl_longest_ms), stalls]
            cells += [_number(r.ttft_p99_ms), f"{r.busy_frac:.0%}", budget]
            cells += [_number(r.arrivals_per_s), str(r.finished)]
            cells += [str(r.preempted), str(r.overruled), _number(r.reported_s_ago)]
            cells += [str(r.for_others)] if with_roles else []
        table.add_row(*cells, _capacity(r))
    return table


def _capacity(replica: ReplicaStatus) -> str:
    return "SLA out\nof reach" if replica.sla_out_of_reach else _number(replica.capacity_per_s)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
