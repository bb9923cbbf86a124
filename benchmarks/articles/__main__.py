"""``make bench-articles``: what texts on LLM serving advise, replayed.

Prints the tables, writes docs/results/articles.md, ends with one line of JSON.
"""

import argparse
import json
import os

from benchmarks.articles import swapping, waiting
from benchmarks.report.document import write_page
from benchmarks.report.rows import rows_table
from benchmarks.report.seeds import FIRST_SEED
from benchmarks.report.workers import Bench, workers
from simulator.replay.values import count

PARTS = {"waiting": waiting.run, "swapping": swapping.run}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-articles ARGS=", description=__doc__)
    parser.add_argument("--small", action="store_true", help="only see that it runs; no file")
    parser.add_argument("--workers", type=count(1024), default=os.cpu_count() or 1)
    args = parser.parse_args()
    with workers(args.workers) as pool:
        bench = Bench(pool, (FIRST_SEED,), args.small)
        sections = [run(bench) for run in PARTS.values()]
    for section in sections:
        print(rows_table(section.rows), *section.tables, sep="\n\n", flush=True)
    if not args.small:
        write_page("articles", "\n\n".join(s.markdown("make bench-articles") for s in sections))
    rows = [row.to_json() for section in sections for row in section.rows]
    print(json.dumps({"bench": "articles", "rows": rows}))


if __name__ == "__main__":
    main()
