"""Ours beside the best rival and the oracle, day by day: ``make bench-elastic``.

Every run is kept in ``.cache/elastic.json``, so a bench that was stopped goes on where it was.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from benchmarks.fleet import no_search
from benchmarks.fleet.bench import Bench, NotKeptError
from benchmarks.fleet.contest import GRIDS, Found, best_rival
from benchmarks.fleet.kept import Kept
from benchmarks.fleet.one_for_all import OneForAll, best_for_all, groups
from benchmarks.fleet.page import ONE_SETTING, OURS_SPEC, day_table, elastic_page
from benchmarks.fleet.starts import Starts
from benchmarks.report.beside_page import beside_page
from benchmarks.report.code import digest, imported_by
from benchmarks.report.command import end
from benchmarks.report.document import PAGES, ROOT, write_page
from benchmarks.report.rows import rows_table
from benchmarks.report.seeds import FIRST_SEED
from controller.config import Sla
from controller.errors import BrimfulError, ConfigError
from replicas.profiles.profile_file import load_profile
from simulator.fleet.command import ITL_MS, PROFILE, TTFT_MS, quiet
from simulator.fleet.days import CONVERSATION, Day, find_days
from simulator.fleet.plots import plot
from simulator.fleet.policies import ORACLE
from simulator.fleet.simulate import Ground
from simulator.workloads.catalog import load_workload

CACHE = ROOT / ".cache"
DEFAULT_DAYS = ("all",)
STARTUP_S = 100.0


def _draw(bench: Bench, found: Found, *, oracle: bool) -> None:
    """Ours and the best rival over the day; with the oracle, whose search takes some 35 runs."""
    rival = best_rival(found)
    specs = [*([ORACLE] if oracle else []), OURS_SPEC, *([rival.spec] if rival else [])]
    plot(bench.course, [(s, bench.course.outcome(s)) for s in specs], PAGES / "elastic.png")


def _fidelity(ground: Ground) -> str:
    """The fluid beside the real scheduler; measured once for this code."""
    code = digest(imported_by(["benchmarks.fleet.against"]))
    path = CACHE / f"elastic-fidelity-{code}-{ground.seed}.md"
    if not path.exists():
        os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from benchmarks.fleet.against import table

        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(table(ground, load_workload(CONVERSATION), ground.seed))
    return path.read_text()


def _shared(
    benches: Sequence[Bench], found: Mapping[str, Found], starts: Starts | None
) -> dict[str, OneForAll | None]:
    """By a group of days, the best rival with one setting; None where its search was cut short."""
    runs = {bench.day.name: bench.run for bench in benches}
    shared: dict[str, OneForAll | None] = {}
    for group, days in groups(found).items():
        shared[group] = None
        begins: list[Callable[[str], str | None]] = [lambda name: None]
        if starts is not None:
            begins.insert(0, partial(starts.of, group))
        for begin in begins:
            with suppress(NotKeptError):
                shared[group] = best_for_all(found, days, runs, begin)
                break
    return shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--day", nargs="+", default=list(DEFAULT_DAYS), help="all by default")
    parser.add_argument("--policy", nargs="*", choices=GRIDS, default=list(GRIDS))
    parser.add_argument("--startup", type=float, default=STARTUP_S, help="seconds of a replica's")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--again", action="store_true", help="forget what was kept")
    parser.add_argument(
        "--kept", action="store_true", help="run no day: show what was kept of these"
    )
    parser.add_argument(
        "--from-usual",
        action="store_true",
        help="search from usual settings, not from what benchmarks/fleet/starts.json has",
    )
    parser.add_argument(
        "--no-search",
        action="store_true",
        help="each rival only at the setting that benchmarks/fleet/starts.json has, and the figures"
        " beside docs/results/elastic.md",
    )
    parser.add_argument("--plot-day", default="day-1")
    parser.add_argument("--write", action="store_true", help="docs/results/elastic.md as well")
    asked = parser.parse_args()
    if asked.no_search and (asked.write or asked.from_usual):
        parser.error("--no-search goes with neither --write nor --from-usual")
    try:
        _run(asked, parser.get_default("plot_day"))
    except ConfigError as error:
        sys.exit("\n".join(f"error: {problem}" for problem in error.problems))
    except BrimfulError as error:
        sys.exit(f"error: {error}")


def _without_search(
    asked: argparse.Namespace, ground: Ground, kept: Kept, days: Sequence[Day]
) -> None:
    starts = Starts()
    benches = [Bench(day, ground, kept, makes=not asked.kept, starts=starts) for day in days]
    found, rows = no_search.run(benches, starts, asked.policy)
    print(*(day_table(day, made, searched=False) for day, made in found.items()), sep="\n\n")
    print(f"\n{rows_table(rows)}")
    usual = (asked.seed, asked.startup, asked.policy) == (FIRST_SEED, STARTUP_S, list(GRIDS))
    if usual:  # else the page's figures are of something else
        whole = asked.day == list(DEFAULT_DAYS)
        same = [row for row in rows if whole or not row.id.endswith(ONE_SETTING)]
        print(f"\n{beside_page('elastic', same, whole=whole)}")
    end("elastic", rows)


def _run(asked: argparse.Namespace, usual_plot_day: str) -> None:
    quiet()
    sla = Sla(itl_ms=ITL_MS, ttft_ms=TTFT_MS)
    ground = Ground(load_profile(PROFILE), sla, asked.startup, tick_s=10.0, seed=asked.seed)
    kept = Kept(CACHE / "elastic.json", again=asked.again)
    days = find_days(asked.day, "", 1.0)
    starts = None if asked.from_usual else Starts()
    if asked.no_search:
        _without_search(asked, ground, kept, days)
        return
    benches = [Bench(day, ground, kept, makes=not asked.kept, starts=starts) for day in days]
    made = {bench.day.name: bench.all(asked.policy) for bench in benches}
    found: dict[str, Found] = {name: results for name, (results, _) in made.items()}
    cut = {name: short for name, (_, short) in made.items()}
    shared = _shared(benches, found, starts)
    found = {bench.day.name: bench.with_later_runs(found[bench.day.name]) for bench in benches}
    if asked.plot_day in found and asked.write:
        (bench,) = (bench for bench in benches if bench.day.name == asked.plot_day)
        _draw(bench, found[asked.plot_day], oracle=not asked.kept)
    page = elastic_page(found, ground, _fidelity(ground), cut, shared)
    words = "" if asked.day == list(DEFAULT_DAYS) else f"--day {' '.join(asked.day)} "
    words += "--kept " if asked.kept else ""
    words += "" if asked.plot_day == usual_plot_day else f"--plot-day {asked.plot_day} "
    text = page.markdown(f"make bench-elastic ARGS='{words}--write'")
    print(text)
    if asked.write:
        write_page("elastic", text)
        if starts is not None and (asked.seed, asked.startup) == (FIRST_SEED, STARTUP_S):
            starts.keep(found, cut, shared if asked.day == list(DEFAULT_DAYS) else {})
    end("elastic", page.rows)


if __name__ == "__main__":
    main()
