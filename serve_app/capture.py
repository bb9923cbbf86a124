"""``brimful capture``: the requests of a running fleet as JSONL, for ``brimful replay``."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from tqdm import tqdm

from controller.errors import BrimfulError, ConfigError
from serve_app.record import Call, caller
from serve_app.snapshot import add_address, connect, read_snapshot

PERIOD_S = 1.0
LOOK_S = 10.0  # for replicas that came
MOST_MB = 1000.0
ABOUT = (
    "Write each request of a running fleet, once it has ended, as a line of JSON: arrival (Unix"
    " time), tokens in and out, max_tokens, priority, class, whether its client left, and hashes"
    " of what its prompt begins with, one for each 512 tokens. No contents: the hashes are made"
    " under a key of this capture that is written nowhere. What admission refused is not in it."
    " `brimful replay --workload FILE` replays it. Nothing is restarted."
)
EPILOG = (
    "The file is appended to, so that a capture that was stopped goes on; hashes of two captures"
    " do not compare. Ctrl-C ends it."
)
Callers = Callable[[], dict[str, Call]]
"""The replicas that there are now, by id."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = ABOUT, EPILOG
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="JSONL, appended to"
    )
    parser.add_argument("--seconds", type=_positive, help="how long (default: until Ctrl-C)")
    parser.add_argument(
        "--max-mb",
        type=_positive,
        default=MOST_MB,
        metavar="MB",
        help=f"ends where the file has so many (default: {MOST_MB:g})",
    )
    parser.add_argument("--group", metavar="NAME", help="replicas of this group alone")
    add_address(parser)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: a number above 0")
    return value


def run(args: argparse.Namespace) -> int:
    """Capture, and append to the file.

    Raises:
        BrimfulError: there is no cluster, no controller, no such group or no replica, or another
            captures.
    """
    if not args.out.parent.is_dir():
        raise ConfigError([f"--out: {args.out.parent} is not allowed: an existing folder"])
    connect(args.address)
    known: dict[str, Call] = {}

    def callers() -> dict[str, Call]:
        there = replicas_in(read_snapshot(), args.group)
        for gone in known.keys() - set(there):
            del known[gone]
        for replica_id in set(there) - known.keys():
            known[replica_id] = caller(replica_id)
        return dict(known)

    with args.out.open("a") as out, tqdm(unit=" requests", file=sys.stderr) as bar:
        lost = capture(
            callers,
            out,
            args.seconds or float("inf"),
            args.max_mb * 1e6,
            bar.update,
            lambda text: bar.write(text, file=sys.stderr),
        )
    told = f", {lost:,} more ended between two looks and were lost" if lost else ""
    print(f"{args.out}: {bar.n:,} requests{told}", file=sys.stderr)
    return 0


def replicas_in(snapshot: dict[str, Any], group: str | None) -> list[str]:
    """The ids of the replicas of a group, or of all.

    Raises:
        BrimfulError: there is none; names the groups that are there.
    """
    groups = snapshot["groups"]
    if group is not None and group not in groups:
        known = ", ".join(sorted(groups)) or "none"
        raise BrimfulError(f"--group: {group!r} does not exist; the groups are: {known}")
    found = [one for of, g in groups.items() if group in (None, of) for one in g["replicas"]]
    if not found:
        raise BrimfulError("nothing was captured: no replica has reported yet")
    return sorted(found)


def capture(
    callers: Callers,
    out: TextIO,
    seconds: float,
    most_bytes: float,
    tell: Callable[[int], Any],
    warn: Callable[[str], Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Append what ends in the next ``seconds``; how many were lost.

    Args:
        tell: is told how many were written, again and again.
        warn: is told of replicas that do not answer; they are asked again.

    Raises:
        BrimfulError: at the beginning another captures one of the replicas.
    """
    owner, begin_s, lost = uuid4().hex, clock(), 0
    calls, looked_s = callers(), begin_s
    for replica_id, call in calls.items():
        if call("requests", owner, True) is None:
            _stop(calls, owner)
            raise BrimfulError(
                f"replica {replica_id} is captured already, or was so until less than 10 s ago;"
                " wait for its end"
            )
    silent: set[str] = set()
    try:
        while (left_s := seconds - (clock() - begin_s)) > 0 and out.tell() < most_bytes:
            sleep(min(PERIOD_S, left_s))
            if clock() >= looked_s + LOOK_S:
                calls, looked_s = _callers_now(callers, calls, warn), clock()
            for replica_id, call in calls.items():
                try:
                    drained = call("requests", owner, True)
                except BrimfulError as error:
                    if replica_id not in silent:
                        warn(f"{error}; going on without it")
                    silent.add(replica_id)
                    continue
                silent.discard(replica_id)
                lost += _write(replica_id, drained, out, tell)
    except KeyboardInterrupt:
        pass
    finally:
        for replica_id, drained in _stop(calls, owner):
            lost += _write(replica_id, drained, out, tell)
    return lost


def _callers_now(
    callers: Callers, before: dict[str, Call], warn: Callable[[str], Any]
) -> dict[str, Call]:
    try:
        return callers()
    except BrimfulError as error:
        warn(f"{error}; going on with the replicas that were there")
        return before


def _write(
    replica_id: str, drained: dict[str, Any] | None, out: TextIO, tell: Callable[[int], Any]
) -> int:
    """Append the requests; how many were lost."""
    if drained is None:  # another took over, or the engine started anew
        return 0
    for row in sorted(drained["requests"], key=lambda row: row["arrival_s"]):
        whole = {**row, "replica": replica_id}
        lean = {k: v for k, v in whole.items() if v is not None and v is not False and v != []}
        out.write(json.dumps(lean, separators=(",", ":")) + "\n")
    out.flush()
    tell(len(drained["requests"]))
    return int(drained["lost"])


def _stop(calls: dict[str, Call], owner: str) -> list[tuple[str, dict[str, Any] | None]]:
    """End the recordings; what each still had."""
    found = []
    for replica_id, call in calls.items():
        try:
            found.append((replica_id, call("requests", owner, False)))
        except BrimfulError:  # it is gone, or ends by itself in ten seconds
            continue
    return found
