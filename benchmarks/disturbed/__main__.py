"""``make disturbed``: ``adaptive`` beside the best static setting, where steps are disturbed.

Prints tables, writes docs/results/disturbed.md, and ends with one line of JSON. ``--search``
(``make disturbed-search``) finds the static settings instead, for the rows that best_static.json
does not have as they are now, and puts each load's into it as it is done. Every result is kept in
``.cache/disturbed.sqlite`` for the code it is of, so that what was stopped goes on where it was.
Of some of the loads nothing is written but settings. ``--published`` compares the published
capacity of nine rows with what is served, and writes docs/results/d3.md; ``--recovery`` finds how
soon first tokens come as before once a disturbance is over, and writes docs/results/d2.md.
"""

import json
import subprocess
from collections.abc import Sequence
from itertools import product

from benchmarks.disturbed import best_static, page, published, recovery, replays, search
from benchmarks.disturbed.best_static import entry_of, settings_of, unsearched
from benchmarks.disturbed.compared import Compared, Side, bounds_of, overall
from benchmarks.disturbed.replays import Task
from benchmarks.disturbed.rows import Row, all_rows
from benchmarks.disturbed.search import SMALL_RUNGS, STATIC, Search
from benchmarks.report.command import CACHE, SEEDS, bench_of, end, parser_of, seeds_of, show
from benchmarks.report.document import ROOT, write_page
from benchmarks.report.workers import Bench

ADAPTIVE = "adaptive"
SECTIONS = {"published": published, "recovery": recovery}


def main() -> None:
    rows = all_rows()
    names = list(dict.fromkeys(row.load.name for row in rows))
    parser = parser_of(__doc__, names, "LOAD")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--search", action="store_true", help="find the static settings")
    for name in SECTIONS:
        part.add_argument(f"--{name}", dest="section", action="store_const", const=name)
    args = parser.parse_args()
    if args.section and args.only != names:
        parser.error(f"--only: not allowed with --{args.section}, which has rows of its own")
    asked = [row for row in rows if row.load.name in args.only]
    modules = [one.__name__ for one in (replays, search, *SECTIONS.values())]
    with bench_of(
        args, seeds_of(1 if args.small else SEEDS), CACHE / "disturbed.sqlite", modules
    ) as bench:
        if args.section:
            section = SECTIONS[args.section].run(bench)
            show(section)
            if not args.small:
                write_page(section.name, section.markdown(f"make disturbed ARGS=--{args.section}"))
            end(args.section, section.rows)
        elif args.search:
            _search(bench, asked, again=args.again)
        else:
            _compare(bench, asked, whole=len(asked) == len(rows))


def _search(bench: Bench, rows: Sequence[Row], *, again: bool) -> None:
    if not (again or bench.small):
        rows = unsearched(rows, best_static.read())
    commit = _commit()
    for load in dict.fromkeys(row.load for row in rows):
        of = [row for row in rows if row.load == load]
        tasks = [Search(row, bench.small) for row in of]
        done = bench.map(search.search, tasks, load.name, lambda task: False)
        found = {row.id: entry_of(row, best, commit) for row, best in zip(of, done, strict=True)}
        for name, entry in found.items():
            print(f"{name}: {entry.setting.of(STATIC)}, J {entry.j:g}", flush=True)
        if not bench.small:
            best_static.write(found)


def _compare(bench: Bench, rows: Sequence[Row], *, whole: bool) -> None:
    entries = best_static.read()
    settings = settings_of(rows, entries)
    share = SMALL_RUNGS[-1].share if bench.small else 1.0
    tasks = [
        Task(row, spec, seed, share)
        for row in rows
        for spec, seed in product((settings[row].of(STATIC), ADAPTIVE), bench.seeds)
    ]
    done = iter(bench.map(replays.run, tasks, "disturbed", replays.is_ours))
    found = []
    for row in rows:
        static, adaptive = (Side(tuple(next(done) for _ in bench.seeds)) for _ in range(2))
        bounds = bounds_of(row, bench.seeds)
        found.append(Compared(row, settings[row], static, adaptive, bounds))
    print(page.ratios_table(found), page.bounds_table(found), sep="\n\n", flush=True)
    if whole and not bench.small:
        page.write(found, [entries[row.id] for row in rows], bench.seeds)
    last = [*(one.to_json() for one in found), overall(found)]
    print(json.dumps({"bench": "disturbed", "rows": last}))


def _commit() -> str:
    """The checkout's, and whether files differ from it; unknown outside of one."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return told.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
