"""``brimful capture``: the requests of a running fleet as JSONL, for ``brimful replay``."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TextIO
from uuid import uuid4

from tqdm import tqdm

from controller.errors import BrimfulError
from serve_app.options import above_0, add_address, add_group, add_out, require_folder
from serve_app.record import Call, caller
from serve_app.snapshot import connect, engines_of, read_snapshot

PERIOD_S = 1.0
LOOK_S = 10.0  # between looks for new replicas
MOST_BYTES = 1e9  # of a file; then a capture ends
MOST_AT_ONCE = 64  # replicas that are asked at once
TAKEN = "is captured by another command, or was until less than 30 s ago; wait until that has ended"
ABOUT = (
    "Write each request of a running fleet, once it has ended, as a line of JSON: arrival"
    " (Unix time), tokens in and out, max_tokens, priority, class, whether its client left,"
    " and hashes of the beginning of its prompt, one for each 512 tokens. No contents are"
    " written, and the key of the hashes is stored nowhere. Requests that admission refused"
    " are left out. `brimful replay --workload FILE` replays the file. No replica is restarted."
)
EPILOG = "Ctrl-C ends it, and a file of 1 GB. Hashes of two captures do not compare."
Callers = Callable[[], dict[str, Call]]
"""The replicas that there are now, by id."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = ABOUT, EPILOG
    add_out(parser, "JSONL, a new file")
    parser.add_argument("--seconds", type=above_0, help="how long (default: until Ctrl-C)")
    add_group(parser, "only replicas of this group")
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    """Capture, and write the file.

    Raises:
        BrimfulError: there is no cluster, no controller, no such group or no replica, another
            captures, or the file is there, or cannot be written.
    """
    require_folder(args.out)
    connect(args.address)
    known: dict[str, Call] = {}

    def callers() -> dict[str, Call]:
        there = engines_of(read_snapshot(), args.group).keys()
        for gone in known.keys() - there:
            del known[gone]
        for replica_id in there - known.keys():
            with suppress(BrimfulError):  # gone since it reported
                known[replica_id] = caller(replica_id)
        if not known:
            raise BrimfulError("nothing was captured: Ray Serve has removed all these replicas")
        return dict(known)

    try:
        with args.out.open("x") as out, tqdm(unit=" requests", file=sys.stderr) as bar:
            try:
                lost = capture(
                    callers,
                    out,
                    args.seconds or float("inf"),
                    bar.update,
                    lambda text: bar.write(text, file=sys.stderr),
                )
            finally:
                if not out.tell():  # so that the next try finds none
                    args.out.unlink()
    except OSError as error:  # of a full disk, too
        raise BrimfulError(f"--out: {args.out}: {error.strerror}") from None
    told = f", {lost:,} more ended between two reads and were lost" if lost else ""
    print(f"{args.out}: {bar.n:,} requests{told}", file=sys.stderr)
    return 0


def capture(
    callers: Callers,
    out: TextIO,
    seconds: float,
    tell: Callable[[int], Any],
    warn: Callable[[str], Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Append requests that end in the next ``seconds``; returns how many were lost.

    Args:
        tell: called repeatedly with the number written.
        warn: called with replicas that do not answer; they are asked again.

    Raises:
        BrimfulError: another capture has one of the replicas, or none answers at the beginning.
    """
    begin_s, looked_s = clock(), clock()
    calls = callers()
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        asking = _Asking(pool, out, tell, warn)
        asking.begin(calls)
        try:
            while (left_s := seconds - (clock() - begin_s)) > 0 and out.tell() < MOST_BYTES:
                sleep(min(PERIOD_S, left_s))
                if clock() >= looked_s + LOOK_S:
                    calls, looked_s = asking.look(callers, calls), clock()
                asking.ask(calls)
                asking.take(wait_s=PERIOD_S)
        except KeyboardInterrupt:
            pass
        finally:
            asking.take()
            asking.ask(calls, on=False)
            asking.take()
    return asking.lost


class _Asking:
    """Asks all replicas at once: one that does not answer does not delay the others.

    Attributes:
        lost: requests that ended and were not recorded.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        out: TextIO,
        tell: Callable[[int], Any],
        warn: Callable[[str], Any],
    ) -> None:
        self._pool, self._out, self._tell, self._warn = pool, out, tell, warn
        self._owner, self.lost = uuid4().hex, 0
        self._asked: dict[str, Future[dict[str, Any] | None]] = {}
        self._begun: set[str] = set()
        self._problems: dict[str, str] = {}  # each told once, until that replica answers again

    def begin(self, calls: dict[str, Call]) -> None:
        """Begin to record.

        Raises:
            BrimfulError: another capture has one of them, or none answers.
        """
        self.ask(calls)
        self.take()
        found = list(self._problems.values())
        if len(found) == len(calls) or any(TAKEN in text for text in found):
            self.ask(calls, on=False)
            self.take()
            raise BrimfulError("nothing was captured")

    def look(self, callers: Callers, before: dict[str, Call]) -> dict[str, Call]:
        """The present replicas, and removed ones that still answer."""
        try:
            now = callers()
        except BrimfulError as error:
            self._warn(f"{error}; the capture goes on with the replicas known so far")
            return before
        return {one: call for one, call in before.items() if one not in self._problems} | now

    def ask(self, calls: dict[str, Call], *, on: bool = True) -> None:
        """Ask for ended requests; turn recording on or off from now on."""
        for replica_id in calls.keys() - self._asked.keys():
            call = calls[replica_id]
            self._asked[replica_id] = self._pool.submit(call, "requests", self._owner, on)

    def take(self, wait_s: float | None = None) -> None:
        """Append what they answer within this time; None: until all answered or failed."""
        done = wait(self._asked.values(), wait_s).done
        for replica_id in [one for one, future in self._asked.items() if future in done]:
            try:
                drained = self._asked[replica_id].result()
            except BrimfulError as error:
                self._problem(
                    replica_id, f"{error}; requests that end there meanwhile may be missing"
                )
            else:
                if drained is None:
                    self._problem(replica_id, f"replica {replica_id} {TAKEN}")
                else:
                    self._write(replica_id, drained)
            del self._asked[replica_id]

    def _problem(self, replica_id: str, text: str) -> None:
        if replica_id not in self._problems:
            self._problems[replica_id] = text
            self._warn(text)

    def _write(self, replica_id: str, drained: dict[str, Any]) -> None:
        self._problems.pop(replica_id, None)
        if drained["fresh"] and replica_id in self._begun:
            self._warn(
                f"replica {replica_id} was not read for 30 s and stopped recording; it records"
                " again, and requests that ended meanwhile are missing"
            )
        self._begun.add(replica_id)
        for row in sorted(drained["requests"], key=lambda row: row["arrival_s"]):
            whole = {**row, "replica": replica_id}
            lean = {k: v for k, v in whole.items() if v is not None and v is not False and v != []}
            self._out.write(json.dumps(lean, separators=(",", ":")) + "\n")
        self._out.flush()
        self._tell(len(drained["requests"]))
        self.lost += drained["lost"]
