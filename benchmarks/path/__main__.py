"""``make bench-path``: the cost of the path from the engine to the client, versus bare vLLM.

Prints tables, writes docs/results/path.md, and ends with one line of JSON.
"""

import argparse
import shlex
import sys

from benchmarks.path.measure import measure
from benchmarks.path.report import section
from benchmarks.path.stacks import ADAPTIVE, IN_PROCESS, STACKS
from benchmarks.report.command import end
from benchmarks.report.document import write_page
from benchmarks.report.rows import rows_table

CONCURRENCY: tuple[int, ...] = (1, 8, 32, 64, 256)
ROUNDS = 5
SMALL = (IN_PROCESS, ADAPTIVE)


def main() -> int:
    """Returns 1 if the run was broken off; the page has the reason."""
    names = [stack.name for stack in STACKS]
    parser = argparse.ArgumentParser(prog="make bench-path", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SERVER")
    parser.add_argument("--small", action="store_true", help="a test run; no file")
    args = parser.parse_args()
    chosen, streams, rounds, turns = args.only, CONCURRENCY, ROUNDS, None
    if args.small:
        chosen, streams, rounds, turns = SMALL, (8, 32), 1, 1
    found = measure([one for one in STACKS if one.name in chosen], streams, rounds, turns)
    result = section(found, streams, rounds)
    print(rows_table(result.rows))
    print(*result.tables, sep="\n\n")
    if not args.small:
        given = shlex.join(sys.argv[1:])
        command = f"make bench-path ARGS='{given}'" if given else "make bench-path"
        write_page(result.name, result.markdown(command))
    end("path", result.rows)
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main())
