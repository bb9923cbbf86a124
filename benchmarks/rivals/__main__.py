"""``make rivals``: ``adaptive`` against named rivals, each on its own ground.

Prints tables, puts its sections into docs/results/rivals.md, and ends with one line of JSON.
``--only R1 R4`` takes whole grounds, ``--only R1:azure R4:heavy-tail`` some of their workloads, and
``--rival NAME`` some of the rivals in R1 and R4; of a part of a ground nothing is written. Every
replay is kept in ``.cache/rivals.sqlite`` for the code it is of, so that a bench that was stopped
goes on where it was. ``--no-search`` tunes no rival anew, which takes hours instead of most of a
day: each has what an earlier search had ended with (benchmarks/rivals/settings.json). The figures
are shown beside those of the page, and nothing is written.
"""

import time
from collections.abc import Callable, Sequence

from benchmarks.contests import classes, contest, entry, fleets, offline
from benchmarks.contests.sweeps import OFFLINE, SWEEPS
from benchmarks.report.beside_page import beside_page
from benchmarks.report.command import CACHE, add_seeds, bench_of, end, parser_of, seeds_of, show
from benchmarks.report.rows import Row, Section
from benchmarks.report.workers import Bench
from benchmarks.rivals import page, r1_capacity, r3_classes, r3_fleet, r4_offline
from benchmarks.rivals.settings import Settings

KEPT = CACHE / "rivals.sqlite"
# Where some of the rivals can be chosen.
RIVALS = {"R1": tuple(SWEEPS), "R1-reasoning": tuple(SWEEPS), "R4": tuple(OFFLINE)}
REPLAYED = tuple(one.__name__ for one in (contest, entry, classes, fleets, offline))
Part = Callable[[Bench, Sequence[str], Settings], Section]
PARTS: dict[str, tuple[Part, tuple[str, ...]]] = {
    "R1": (r1_capacity.run, tuple(c.name for c in r1_capacity.GROUNDS)),
    "R1-reasoning": (r1_capacity.run_reasoning, ()),
    "R3": (r3_classes.run, tuple(classes.GROUNDS)),
    "R3-fleet": (r3_fleet.run, tuple(classes.GROUNDS)),
    "R4": (r4_offline.run, tuple(c.name for c in r4_offline.GROUNDS)),
}


def asked(only: Sequence[str]) -> dict[str, list[str]]:
    """The workloads of each part that were asked for; none named: all of them."""
    found: dict[str, list[str]] = {}
    for word in only:
        part, _, name = word.partition(":")
        found.setdefault(part, [])
        if name:
            found[part].append(name)
    return found


def main() -> None:
    words = [*PARTS, *(f"{part}:{name}" for part, (_, names) in PARTS.items() for name in names)]
    parser = parser_of(__doc__, words)
    parser.set_defaults(only=list(PARTS))
    add_seeds(parser)
    parser.add_argument(
        "--rival",
        nargs="+",
        choices=sorted({*SWEEPS, *OFFLINE}),
        default=[],
        help="these alone, in R1 and R4; figures over the best of them have no target",
    )
    parser.add_argument(
        "--no-search", action="store_true", help="no rival is tuned anew; no file is written"
    )
    args = parser.parse_args()
    for part in asked(args.only) if args.rival else ():
        if not {*args.rival} & {*RIVALS.get(part, ())}:
            can = ", ".join(RIVALS.get(part, ())) or "it always has the same"
            parser.error(f"--rival: none of {', '.join(args.rival)} can be chosen in {part}: {can}")
    whole = not (args.small or args.rival or args.no_search)
    rows: list[Row] = []
    published: list[Row] = []  # those that are what they are on the page
    known = page.PATH.read_text() if page.PATH.exists() else ""
    seeds, only = seeds_of(args.seeds), tuple(args.rival)
    with bench_of(args, seeds, KEPT, REPLAYED, only) as bench:
        settings = Settings(searches=not args.no_search)
        for part, names in asked(args.only).items():
            began_s = time.monotonic()
            section = PARTS[part][0](bench, names, settings)
            rows += section.rows
            told = " ".join([f"{part}:{name}" for name in names] or [part])
            command = f"make rivals ARGS='--only {told} --seeds {args.seeds}'"
            if f"Command: `{command}`" in known and not (args.rival or args.small):
                published += section.rows
            show(section, time.monotonic() - began_s)
            if whole and not names:
                page.write(section, command)
                settings.write(part)
    if args.no_search and published:
        print(f"\n{beside_page(page.NAME, published, page.PATH.parent)}")
    end("rivals", rows)


if __name__ == "__main__":
    main()
