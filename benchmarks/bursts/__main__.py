"""``make bench-bursts``: what follows a start that cannot be taken back.

Prints the tables, writes docs/results/bursts.md, ends with one line of JSON. Every replay is kept
in ``.cache/bursts.sqlite`` for the code it is of.
"""

import argparse
import json
import os
import sys

from benchmarks.bursts import burst, turn
from benchmarks.report.document import ROOT, write_page
from benchmarks.report.kept import KeptRuns
from benchmarks.report.rows import rows_table
from benchmarks.report.workers import Bench, workers
from controller.errors import BrimfulError
from simulator.replay.values import count

PARTS = {"A1": burst.run, "A2": turn.run}
KEPT = ROOT / ".cache" / "bursts.sqlite"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench-bursts ARGS=",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--again", action="store_true", help="make again what was kept")
    parser.add_argument("--small", action="store_true", help="only see that it runs; no file")
    parser.add_argument("--workers", type=count(1024), default=os.cpu_count() or 1)
    args = parser.parse_args()
    kept = None
    if not args.small:
        kept = KeptRuns(KEPT, (burst.__name__, turn.__name__), again=args.again)
    try:
        with workers(args.workers) as pool:
            bench = Bench(pool, (burst.SEED,), args.small, kept)
            sections = [PARTS[name](bench) for name in args.only]
    except BrimfulError as error:
        sys.exit(f"error: {error}")
    for section in sections:
        print(rows_table(section.rows), *section.tables, sep="\n\n", flush=True)
    if not args.small and len(sections) == len(PARTS):
        pages = [section.markdown("make bench-bursts") for section in sections]
        write_page("bursts", "\n\n".join(pages))
    rows = [row.to_json() for section in sections for row in section.rows]
    print(json.dumps({"bench": "bursts", "rows": rows}))


if __name__ == "__main__":
    main()
