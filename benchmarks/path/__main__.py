"""``make bench-path``: what the way from the engine to the client costs, beside bare vLLM.

Prints tables, writes docs/results/path.md, and ends with one line of JSON.
"""

import argparse
import sys

from benchmarks.path.measure import measure
from benchmarks.path.report import section
from benchmarks.path.stacks import ADAPTIVE, IN_PROCESS, STACKS
from benchmarks.report.command import end
from benchmarks.report.document import write_page
from benchmarks.report.rows import rows_table

CONCURRENCY = (1, 8, 32, 64, 256)
ROUNDS = 5
SMALL = (IN_PROCESS, ADAPTIVE)


def main() -> int:
    """1 where something was broken off, and the reason is in the page."""
    parser = argparse.ArgumentParser(prog="make bench-path", description=__doc__)
    names = [stack.name for stack in STACKS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SERVER")
    parser.add_argument("--concurrency", nargs="+", type=_whole, default=CONCURRENCY, metavar="N")
    parser.add_argument("--rounds", type=_whole, default=ROUNDS)
    parser.add_argument("--small", action="store_true", help="only see that it runs; no file")
    args = parser.parse_args()
    chosen, streams, rounds = args.only, sorted(set(args.concurrency)), args.rounds
    if args.small:
        chosen = [name for name in SMALL if name in chosen] or chosen[:1]
        streams, rounds = [8, 32], 1
    found = measure(
        [one for one in STACKS if one.name in chosen],
        streams,
        rounds,
        turns=1 if args.small else None,
    )
    result = section(found, streams, rounds)
    print(rows_table(result.rows))
    print(*result.tables, sep="\n\n")
    if not args.small:
        write_page(result.name, result.markdown(_command(args)))
    end("path", result.rows)
    return 1 if found.failed else 0


def _whole(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not allowed: a whole number from 1")
    return number


def _command(args: argparse.Namespace) -> str:
    given = []
    if len(args.only) < len(STACKS):
        given += ["--only", *args.only]
    if tuple(args.concurrency) != CONCURRENCY:
        given += ["--concurrency", *map(str, args.concurrency)]
    if args.rounds != ROUNDS:
        given += ["--rounds", str(args.rounds)]
    return "make bench-path" + (f" ARGS='{' '.join(given)}'" if given else "")


if __name__ == "__main__":
    sys.exit(main())
