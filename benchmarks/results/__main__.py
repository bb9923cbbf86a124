"""``make results``: how good the policy ``adaptive`` is, each figure with its target.

Prints tables, writes its pages in docs/results, and ends with one line of JSON.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from importlib import import_module

from benchmarks.report.document import PAGES, write_page
from benchmarks.report.rows import Row, Section, rows_table
from benchmarks.report.seeds import FIRST_SEED
from benchmarks.report.workers import Bench, workers

# By name: the modules that measure them. One that measures two parts stands under the first.
PARTS = {
    "G1": "g1_g2_memory.run",
    "G4": "g4_phases.run",
    "G3": "g3_capacity.run",
}
INCLUDED = {"G2": "G1", "G3-tables": "G3"}


def part(name: str) -> Callable[[Bench], Section]:
    """What measures a part."""
    module, function = PARTS[name].split(".")
    run: Callable[[Bench], Section] = getattr(
        import_module(f"benchmarks.results.{module}"), function
    )
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*PARTS, *INCLUDED]
    parser.add_argument("--only", nargs="+", choices=names, default=list(PARTS), metavar="PART")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--small", action="store_true", help="only see that it runs; no file")
    args = parser.parse_args()
    asked = {INCLUDED.get(name, name) for name in args.only}
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + args.seeds))
    rows: list[Row] = []
    PAGES.mkdir(parents=True, exist_ok=True)
    with workers(args.workers) as pool:
        bench = Bench(pool, seeds, args.small)
        for name in (name for name in PARTS if name in asked):
            began_s = time.monotonic()
            section = part(name)(bench)
            rows += section.rows
            took_s = time.monotonic() - began_s
            print(f"\n{name}: {section.title} ({took_s:.0f} s)\n\n{rows_table(section.rows)}")
            print(*section.tables, sep="\n\n", flush=True)
            if not args.small:
                command = f"make results ARGS='--only {name} --seeds {args.seeds}'"
                write_page(name, section.markdown(command))
    print(json.dumps({"bench": "results", "rows": [row.to_json() for row in rows]}))


if __name__ == "__main__":
    main()
