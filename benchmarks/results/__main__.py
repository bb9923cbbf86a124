"""``make results``: how good the policy ``adaptive`` is, each figure with its target.

Prints tables, writes its pages in docs/results, and ends with one line of JSON. Every replay is
kept in ``.cache/results.sqlite`` for the code it is of.
"""

import time
from importlib import import_module

from benchmarks.report.command import CACHE, add_seeds, bench_of, end, parser_of, seeds_of, show
from benchmarks.report.document import write_page
from benchmarks.report.rows import Row, Section

# By name: the modules that measure them. One that measures two parts stands under the first.
PARTS = {
    "G1": "g1_g2_memory",
    "G4": "g4_phases",
    "G3": "g3_capacity",
    "G9": "g8_g9_control",
    "A1": "a1_bursts",
    "A2": "a2_turn",
}
INCLUDED = {"G2": "G1", "G3-tables": "G3", "G8": "G9"}


def main() -> None:
    parser = parser_of(__doc__, [*PARTS, *INCLUDED])
    add_seeds(parser)
    args = parser.parse_args()
    asked = {INCLUDED.get(name, name) for name in args.only}
    modules = {name: f"benchmarks.results.{of}" for name, of in PARTS.items() if name in asked}
    rows: list[Row] = []
    with bench_of(
        args, seeds_of(args.seeds), CACHE / "results.sqlite", list(modules.values())
    ) as bench:
        for name, module in modules.items():
            began_s = time.monotonic()
            section: Section = import_module(module).run(bench)
            rows += section.rows
            show(section, time.monotonic() - began_s)
            if not args.small:
                command = f"make results ARGS='--only {name} --seeds {args.seeds}'"
                write_page(name, section.markdown(command))
    end("results", rows)


if __name__ == "__main__":
    main()
