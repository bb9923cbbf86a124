"""``python -m benchmarks batch``: batches beside online requests, in virtual time.

One engine of a fleet of twenty, at the rates of days 1, 7 and 13 of ``servegen-m-small``: those of
the ten minutes at the 5th percentile (trough), the median and the peak, which is 0.85 of what steps
of 50 ms carry; 60 s of each, after 20. Beside it more requests of batches (512 in, 256 out on
average) than can be answered. On a second profile day 7 alone.

Three things to hold offline tokens/s against: batches alone, without an SLA, in the time in which
no step ran for online requests alone (an engine with one decode is busy; no row where that was no
time at all); the fluid limit of steps of 50 ms beside online requests (``room``); and rivals:
vLLM's priorities with the static limits, and HyGen's rule with the latency budget, that had the
most offline tokens on day 7's median with at least 0.99 of the online requests in time that
``adaptive`` had alone; where none had, those with the most in time. Online requests are good with
the first token within 2 s and 99% of the others within 50 ms.

Prints tables, writes docs/results/batch.md, and ends with one line of JSON.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from benchmarks.batch import replays
from benchmarks.batch.replays import (
    ITL_MS,
    LENGTHS,
    Case,
    Figures,
    Hour,
    Task,
    is_ours,
    most_offline_per_s,
    rate_of,
    stats_of,
)
from benchmarks.contests.tuning import on_line
from benchmarks.report.command import CACHE, bench_of, end, parser_of, show
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.rows import Row, Section, exactly
from benchmarks.report.workers import Bench
from replicas.profiles.profile_file import load_profile

DAYS = {"paper-fig3": (1, 7, 13), "a100-Llama-2-7b-hf-tp1": (7,)}
HOURS = get_args(Hour)
PILOT = (7, "mid")
SMALL_S = 30.0
CAPS = (0.3, 0.5, 0.75)  # of the decodes that take 50 ms alone
BUDGETS_MS = (44.0, 47.0, 49.5)
LEAST_OFFLINE, LEAST_GOOD, MOST_LATE = 0.85, 0.99, 0.01
OURS, STATIC, HYGEN = "adaptive", "static", "hygen"


def main() -> None:
    """Run it."""
    args = parser_of(__doc__, DAYS, "PROFILE").parse_args()
    with bench_of(args, (1,), CACHE / "batch.sqlite", [replays.__name__]) as bench:
        section = run(bench, args.only)
    show(section)
    if not args.small and args.only == list(DAYS):
        write_page("batch", section.markdown("python -m benchmarks batch"))
    end("batch", section.rows)


def run(bench: Bench, profiles: Sequence[str]) -> Section:
    """Every case of these profiles."""
    figures: list[Row] = []
    lines: list[tuple[str, ...]] = []
    tuned: list[tuple[str, ...]] = []
    for profile in profiles:
        cases = [_case(bench, profile, day, hour) for day in DAYS[profile] for hour in HOURS]
        cases = cases[1:2] if bench.small else cases
        alone = bench.map(
            replays.run, [Task(c, OURS, "online") for c in cases], f"{profile} online"
        )
        pilot = next(c for c in cases if (c.day, c.hour) == PILOT or bench.small)
        best = _tuned(bench, pilot, alone[cases.index(pilot)])
        tuned.append((profile, best[STATIC], best[HYGEN]))
        batch = bench.map(
            replays.run,
            [Task(pilot, spec, "batch", classed=False) for spec in (OURS, STATIC)],
            f"{profile} batch",
            is_ours,
        )
        most_per_s = max(one.offline_per_s for one in batch)
        specs = {OURS: OURS, **best}
        tasks = [_task(case, spec) for case in cases for spec in specs.values()]
        found = iter(bench.map(replays.run, tasks, f"{profile} both", is_ours))
        sums = {"got": 0.0, "idle": 0.0, "room": 0.0}
        for case, online in zip(cases, alone, strict=True):
            idle = (1 - online.busy_frac) * most_per_s
            room = most_offline_per_s(load_profile(profile), rate_of(case))
            lines.append(_line(case, "online alone", online, None))
            for name in specs:
                one = next(found)
                lines.append(_line(case, name, one, room))
                if name == OURS:
                    figures += _rows(case, online, one, room)
                    for key, value in (("got", one.offline_per_s), ("idle", idle), ("room", room)):
                        sums[key] += value
        if sums["idle"]:
            figures.append(
                Row(
                    f"batch_of_idle_{profile.partition('-')[0]}",
                    f"offline tokens over those of batches alone in idle time, {profile}",
                    "ratio",
                    exactly(sums["got"] / sums["idle"]),
                    at_least=LEAST_OFFLINE,
                )
            )
    head = ("case", "policy", "offline tok/s", "of the room", "good %", "late %",
            "ITL p99 ms", "TTFT p99 ms", "busy %")  # fmt: skip
    tables = (
        markdown_table(head, lines),
        markdown_table(("profile", "static", "HyGen"), tuned),
    )
    text = str(__doc__).split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    return Section("batch", "batches beside online requests", text, tuple(figures), tables)


def _case(bench: Bench, profile: str, day: int, hour: Hour) -> Case:
    case = Case(profile, day, hour)
    return replace(case, run_s=SMALL_S) if bench.small else case


def _task(case: Case, spec: str) -> Task:
    return Task(case, spec, "both", classed=not spec.startswith(STATIC))


def _tuned(bench: Bench, case: Case, alone: Figures) -> dict[str, str]:
    """The setting of each rival that is best on one case."""
    profile, stats = load_profile(case.profile), stats_of(LENGTHS)
    most = 1
    while profile.step_s(most + 1, (most + 1) * stats.mean_held, 0, 0) <= ITL_MS / 1000:
        most += 1
    settings = [on_line(profile, stats, ITL_MS / 1000, round(f * most)) for f in CAPS]
    specs = {
        STATIC: [one.of(STATIC) for one in settings],
        HYGEN: [f"{HYGEN}:budget_ms={ms:g}" for ms in BUDGETS_MS],
    }
    best = {}
    for name, mine in specs.items():
        tasks = [_task(case, spec) for spec in (mine[:1] if bench.small else mine)]
        found = bench.map(replays.run, tasks, f"{case.profile} {name}", lambda _: False)

        def worth(k: int, found: list[Figures] = found) -> tuple[bool, float]:
            one = found[k]
            holds = one.good_frac >= LEAST_GOOD * alone.good_frac and one.late_frac <= MOST_LATE
            return holds, one.offline_per_s if holds else one.good_frac

        best[name] = tasks[max(range(len(tasks)), key=worth)].spec
    return best


def _rows(case: Case, online: Figures, both: Figures, room: float) -> list[Row]:
    name = f"{case.profile.partition('-')[0]}_{case.day}_{case.hour}"
    of = f"{case.profile}, day {case.day}, {case.hour}"
    return [
        Row(f"batch_of_room_{name}", f"offline tokens over the room of 50 ms steps, {of}", "ratio",
            exactly(both.offline_per_s / room), at_least=LEAST_OFFLINE),
        Row(f"batch_good_{name}", f"online goodput over online alone, {of}", "ratio",
            exactly(both.good_frac / max(online.good_frac, 1e-9)), at_least=LEAST_GOOD),
        Row(f"batch_late_{name}", f"online tokens late, {of}", "",
            exactly(both.late_frac), at_most=MOST_LATE),
        Row(f"batch_itl_{name}", f"online ITL p99 over online alone, {of}", "ratio",
            exactly(both.itl_p99_ms / max(online.itl_p99_ms, 1e-9)), at_most=1.01),
        Row(f"batch_ttft_{name}", f"online TTFT p99 over online alone, {of}", "ratio",
            exactly(both.ttft_p99_ms / max(online.ttft_p99_ms, 1e-9)), at_most=1.01),
    ]  # fmt: skip


def _line(case: Case, policy: str, one: Figures, room: float | None) -> tuple[str, ...]:
    of_room = "" if room is None else f"{one.offline_per_s / room:.2f}"
    return (
        f"{case.profile}, day {case.day}, {case.hour}",
        policy.partition(":")[0],
        f"{one.offline_per_s:.0f}",
        of_room,
        f"{100 * one.good_frac:.1f}",
        f"{100 * one.late_frac:.2f}",
        f"{one.itl_p99_ms:.1f}",
        f"{one.ttft_p99_ms:.0f}",
        f"{100 * one.busy_frac:.0f}",
    )


if __name__ == "__main__":
    main()
