"""Ours beside the best rival and the oracle, day by day: ``make bench-elastic``.

Every run is kept in ``.cache/elastic.json``, so a bench that was stopped goes on where it was.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict

from tqdm import tqdm

from benchmarks.fleet.command import ITL_MS, PROFILE, TTFT_MS, quiet
from benchmarks.fleet.contest import GRIDS, Course, Result, best, result, tune
from benchmarks.fleet.days import CONVERSATION, Day, find_days
from benchmarks.fleet.page import OURS_SPEC, best_rival, elastic_page
from benchmarks.fleet.plots import plot
from benchmarks.fleet.policies import ORACLE, OURS
from benchmarks.fleet.simulate import Ground
from benchmarks.report.document import PAGES, ROOT, write_page
from benchmarks.report.workers import FIRST_SEED
from benchmarks.workloads.catalog import load_workload
from controller.config import Sla
from controller.version import VERSION, digest
from replicas.profile_file import load_profile

KEPT = ROOT / ".cache" / "elastic.json"
FIDELITY = ROOT / ".cache" / "elastic-fidelity.md"
DEFAULT_DAYS = ("all",)
OUR_CODE = f"{VERSION} {digest(ROOT / 'serve_app' / 'scaling')}"  # for it alone ours is kept


class Bench:
    """One day's runs, each made once.

    Args:
        kept: results of earlier benches by day, seed and policy.
    """

    def __init__(self, day: Day, ground: Ground, kept: dict[str, Result]) -> None:
        self.day, self._ground, self._kept = day, ground, kept
        self._course: Course | None = None
        self._bar = tqdm(desc=day.name, unit=" runs", file=sys.stderr, mininterval=2)

    @property
    def course(self) -> Course:
        if self._course is None:
            self._course = Course(self.day, self._ground)
        return self._course

    def run(self, spec: str) -> Result:
        """What a policy made of the day, kept or made now."""
        code = f" {OUR_CODE}" if spec.startswith(OURS) else ""
        key = f"{self.day.name} {self._ground.seed} {self._ground.startup_s:g} {spec}{code}"
        if key not in self._kept:
            self._bar.set_postfix_str(spec, refresh=False)
            self._kept[key] = result(self.day, spec, self.course.outcome(spec))
            self._bar.update()
            KEPT.parent.mkdir(parents=True, exist_ok=True)
            KEPT.write_text(json.dumps({k: asdict(r) for k, r in self._kept.items()}, indent=1))
        return self._kept[key]

    def kept(self) -> tuple[dict[str, Result], dict[str, int]]:
        """The same of what was kept, and nothing run: of each policy the best that was tried.

        Returns:
            The results, and how many settings of each policy were tried.
        """
        at = f"{self.day.name} {self._ground.seed} {self._ground.startup_s:g} "
        here = [
            r
            for key, r in self._kept.items()
            if key.startswith(at) and (r.policy != OURS or key.endswith(OUR_CODE))
        ]
        found = {s: r for s in (ORACLE, OURS_SPEC) for r in here if r.spec == s}
        counts = {}
        for name in GRIDS:
            tried = [r for r in here if r.policy == name]
            if tried:
                found[f"{name} tuned"], counts[name] = best(tried), len(tried)
        self._bar.close()
        return found, counts

    def all(self, names: list[str]) -> dict[str, Result]:
        """The oracle, ours with one setting for all days, and each policy at its best here."""
        found = {ORACLE: self.run(ORACLE), OURS: self.run(OURS_SPEC)}
        for name in names:
            found[f"{name} tuned"] = tune(name, GRIDS[name], self.run)
        self._bar.close()
        return found


def _read_kept(again: bool) -> dict[str, Result]:
    if again:
        FIDELITY.unlink(missing_ok=True)
        return {}
    if not KEPT.exists():
        return {}
    return {key: Result(**value) for key, value in json.loads(KEPT.read_text()).items()}


def _draw(bench: Bench, found: dict[str, Result], *, oracle: bool) -> None:
    """Ours and the best rival over the day; with the oracle, whose search takes eight runs."""
    rival = best_rival(found)
    specs = [*([ORACLE] if oracle else []), OURS_SPEC, *([rival.spec] if rival else [])]
    plot(bench.course, [(s, bench.course.outcome(s)) for s in specs], PAGES / "elastic.png")


def _fidelity(ground: Ground) -> str:
    """The fluid beside the real scheduler; measured once."""
    if not FIDELITY.exists():
        os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from benchmarks.fleet.against import table

        FIDELITY.parent.mkdir(parents=True, exist_ok=True)
        FIDELITY.write_text(table(ground, load_workload(CONVERSATION), ground.seed))
    return FIDELITY.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-elastic ARGS=", description=__doc__)
    parser.add_argument("--day", nargs="+", default=list(DEFAULT_DAYS), help="all by default")
    parser.add_argument("--policy", nargs="+", choices=GRIDS, default=list(GRIDS))
    parser.add_argument("--startup", type=float, default=100.0, help="seconds of a replica's")
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    parser.add_argument("--again", action="store_true", help="forget what was kept")
    parser.add_argument(
        "--kept", action="store_true", help="run nothing: show what was kept of these days"
    )
    parser.add_argument("--plot-day", default="day-1")
    parser.add_argument("--write", action="store_true", help="docs/results/elastic.md as well")
    asked = parser.parse_args()
    quiet()
    sla = Sla(itl_ms=ITL_MS, ttft_ms=TTFT_MS)
    ground = Ground(load_profile(PROFILE), sla, asked.startup, tick_s=10.0, seed=asked.seed)
    kept = _read_kept(asked.again)
    benches = [Bench(day, ground, kept) for day in find_days(asked.day, "", 1.0)]
    tried: dict[str, dict[str, int]] = {}
    found: dict[str, dict[str, Result]] = {}
    for bench in benches:
        if not asked.kept:
            found[bench.day.name] = bench.all(asked.policy)
            continue
        results, counts = bench.kept()
        if {ORACLE, OURS} <= results.keys():
            found[bench.day.name], tried[bench.day.name] = results, counts
    by_name = {bench.day.name: bench for bench in benches}
    if asked.plot_day in found and asked.write:
        _draw(by_name[asked.plot_day], found[asked.plot_day], oracle=not asked.kept)
    page = elastic_page(found, ground, _fidelity(ground), tried)
    days = "" if asked.day == list(DEFAULT_DAYS) else f"--day {' '.join(asked.day)} "
    days += "--kept " if asked.kept else ""
    plot_day = asked.plot_day
    days += "" if plot_day == parser.get_default("plot_day") else f"--plot-day {plot_day} "
    text = page.markdown(f"make bench-elastic ARGS='{days}--write'")
    print(text)
    if asked.write:
        write_page("elastic", text)
    print(json.dumps({"bench": "elastic", "rows": [row.to_json() for row in page.rows]}))


if __name__ == "__main__":
    main()
