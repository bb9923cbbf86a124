"""Ours versus the best rival, day by day: ``make bench-elastic``.

A fleet in virtual time (``brimful fleet``, decision 23). Each rival's constants, and Ray Serve's
delays, factors and look-back around it, were found by a search for that day
(benchmarks/fleet/settings.json; the search: fa45f09f). Ours has its defaults on all days.
2744ba77 has an oracle as well, which knows the future.
Replica-hours count from the decision to start until the replica is empty, and only if 99% of all
requests were inside the SLA. Results are cached in ``.cache/elastic.sqlite``.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import geometric_mean

from pydantic import RootModel

from benchmarks.report.command import CACHE, bench_of, end, parser_of, show
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly, shown
from benchmarks.report.seeds import FIRST_SEED
from benchmarks.report.workers import Bench
from controller.config import Sla
from controller.data_file import read_json
from replicas.profiles.profile_file import load_profile
from simulator.fleet.command import ITL_MS, PROFILE, TTFT_MS, quiet
from simulator.fleet.days import shipped_days
from simulator.fleet.outcome import SHARE
from simulator.fleet.policies import OURS, RIVALS
from simulator.fleet.simulate import Scenario
from simulator.fleet.trajectory import Result, Trajectory

SETTINGS = Path(__file__).parent / "settings.json"
STARTUP_S = 100.0
OVER_RIVAL = 0.85
Found = Mapping[str, Result]  # by policy: `brimful`, `NAME tuned`
REAL_DAYS = "real days"  # names begin with "day-"; here: one setting for all of them


class Specs(RootModel[dict[str, dict[str, str]]]):
    """Settings found by searches, by day or ``REAL_DAYS``, and by rival."""


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on a day."""

    day: str
    spec: str


@cache
def trajectory_of(day: str) -> Trajectory:
    """The requests of a day."""
    quiet()
    (found,) = (one for one in shipped_days() if one.name == day)
    sla = Sla(itl_ms=ITL_MS, ttft_ms=TTFT_MS)
    profile = load_profile(PROFILE)
    return Trajectory(found, Scenario(profile, sla, STARTUP_S, tick_s=10.0, seed=FIRST_SEED))


def measure(task: Task) -> Result:
    """The policy's figures for the day."""
    return trajectory_of(task.day).result(task.spec)


def settings_of(bench: Bench) -> dict[str, dict[str, str]]:
    """Each rival's setting by day."""
    rivals = bench.asked_rivals(RIVALS)
    found = read_json(SETTINGS, Specs).root
    return {day: {r: s for r, s in of.items() if r in rivals} for day, of in found.items()}


def run(bench: Bench, days: Sequence[str], specs: Mapping[str, Mapping[str, str]]) -> Section:
    """Every policy on every day."""
    real = [day for day in days if day.startswith("day-")]
    shared = specs.get(REAL_DAYS, {}) if len(real) > 1 else {}
    of_day = {
        day: [OURS, *specs.get(day, {}).values(), *(shared.values() if day in real else ())]
        for day in days
    }
    tasks = [Task(day, spec) for day, of in of_day.items() for spec in dict.fromkeys(of)]
    made = dict(zip(tasks, bench.map(measure, tasks, "elastic"), strict=True))
    found: dict[str, Found] = {
        day: {OURS: made[Task(day, OURS)]}
        | {f"{r} tuned": made[Task(day, s)] for r, s in specs.get(day, {}).items()}
        for day in days
    }
    rows = [row for day, of in found.items() for row in rows_of(day, of)]
    for rival, spec in shared.items():
        ones = {day: made[Task(day, spec)] for day in real}
        if all(one.keeps for one in ones.values()):
            over = geometric_mean(
                found[day][OURS].replica_hours / one.replica_hours for day, one in ones.items()
            )
            what = f"{len(real)} real days: replica-hours over {rival}'s with one setting for all"
            rows.append(Row(f"elastic_one_{rival}", what, "", exactly(over), at_most=OVER_RIVAL))
    text = str(__doc__).split("\n\n", 1)[1].strip()
    tables = tuple(day_table(day, of) for day, of in found.items())
    return Section(
        "elastic", "replicas that follow demand", text, tuple(rows), tables, max_tokens=None
    )


def best_rival(found: Found) -> Result | None:
    """The cheapest rival that keeps the SLA, each at its best; None: none does."""
    rivals = [one for name, one in found.items() if name.endswith(" tuned") and one.keeps]
    return min(rivals, key=lambda one: one.replica_hours, default=None)


def rows_of(day: str, found: Found) -> list[Row]:
    """A day's figures; hours outside the SLA do not count."""
    ours, rival = found[OURS], best_rival(found)
    at = f"elastic_{day.replace('-', '_')}"
    rows = [
        Row(f"{at}_inside", f"{day}: inside the SLA", "", exactly(ours.attainment), at_least=SHARE)
    ]
    if ours.keeps and rival is not None:
        over = exactly(ours.replica_hours / rival.replica_hours)
        what = f"{day}: replica-hours over those of {rival.policy}"
        rows.append(Row(f"{at}_over_rival", what, "", over, at_most=OVER_RIVAL))
    turns = exactly(ours.reversals_per_h)
    return [*rows, Row(f"{at}_reversals", f"{day}: reversals per hour", "/h", turns)]


def day_table(day: str, found: Found) -> str:
    """Each policy's figures for a day; hours outside the SLA in parentheses."""
    head = ("policy", "setting", "inside", "replica-hours", "reversals/h")
    lines = []
    for name, one in found.items():
        setting = f"`{one.spec.partition(':')[2]}`" if ":" in one.spec else ""
        hours = f"{one.replica_hours:.1f}" if one.keeps else f"({one.replica_hours:.1f})"
        turns = shown(one.reversals_per_h)
        lines.append((name, setting, f"{one.attainment:.2%}", hours, turns))
    return f"{day}:\n\n" + markdown_table(head, lines)


def main() -> None:
    every = [day.name for day in shipped_days()]
    parser = parser_of(__doc__, every, "DAY")
    parser.add_argument("--rival", nargs="+", choices=RIVALS, default=[], help="only these")
    args = parser.parse_args()
    began_s = time.monotonic()
    with bench_of(args, (FIRST_SEED,), CACHE / "elastic.sqlite", tuple(args.rival)) as bench:
        days = args.only[:1] if args.small else args.only
        section = run(bench, days, settings_of(bench))
    show(section, time.monotonic() - began_s)
    if args.only == every and not (args.small or args.rival):
        write_page("elastic", section.markdown("make bench-elastic"))
    end("elastic", section.rows)
