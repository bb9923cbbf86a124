"""``make bench-path``: what the way from the engine to the client costs, beside bare vLLM.

Prints tables, writes docs/results/path.md, and ends with one line of JSON.
"""

import argparse
import sys

from benchmarks.path.measure import measure
from benchmarks.path.report import section
from benchmarks.path.stacks import ADAPTIVE, BARE, IN_PROCESS, RAY_DEFAULT, STACKS, Stack
from benchmarks.report.command import end
from benchmarks.report.document import write_page
from benchmarks.report.rows import rows_table

CONCURRENCY = (1, 8, 32, 64, 256)
ROUNDS = 5
SMALL = (IN_PROCESS, ADAPTIVE)


def stages(names: list[str]) -> list[list[Stack]]:
    """The servers that are up together; Ray's default ingress is in a later stage, with bare vLLM.

    All six at once would not leave 24 GiB enough memory.
    """
    chosen = [stack for stack in STACKS if stack.name in names]
    first = [stack for stack in chosen if stack.name != RAY_DEFAULT]
    second = [stack for stack in chosen if stack.name in (BARE, RAY_DEFAULT)]
    if not any(stack.name == RAY_DEFAULT for stack in chosen):
        return [first]
    return [first, second] if any(stack.name != BARE for stack in first) else [second]


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
    found = measure(stages(chosen), streams, rounds, turns=1 if args.small else None)
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
