"""R4: offline tokens/s where KV memory is tight, against the named rivals.

The cases of G1 and one with outputs like a reasoning model's. Every rival is tuned for each case on
the pilot's requests, from a grid of the constants that matter without an SLA.
"""

from collections.abc import Sequence

from benchmarks.contests.offline import (
    CASES,
    PILOT_REQUESTS,
    PROFILE,
    Case,
    Found,
    Task,
    is_ours,
    offline,
    seeds_of,
)
from benchmarks.contests.sweeps import OFFLINE, offline_points
from benchmarks.report.bootstrap import geometric_mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench
from benchmarks.rivals.settings import Setting, Settings

REASONING = Case("reasoning", 150_000, ("reasoning:257,3000,1.3",), 500)
GROUNDS = (*CASES, REASONING)
ADAPTIVE = "adaptive"
LIVE = "paper:memory=live"  # has no constant that is swept
AT_LEAST = 0.995


def run(bench: Bench, names: Sequence[str], settings: Settings) -> Section:
    """Tune on the pilot's requests, then every case with every seed.

    Args:
        names: of the cases; none: all of them.
        settings: of earlier searches, where nothing is to be searched.
    """
    cases = [case for case in GROUNDS if not names or case.name in names]
    cases = cases[:1] if bench.small and not names else cases
    rivals = bench.asked_rivals(tuple(OFFLINE)[:3] if bench.small else OFFLINE)
    counts = [min(case.requests, 60) if bench.small else case.requests for case in cases]
    tuned = _tune(bench, cases, counts, rivals, settings)
    by_case = _replays(bench, cases, counts, tuned)
    return Section(
        "R4",
        "offline throughput where KV memory is tight, against named rivals",
        f"Profile `{PROFILE}`, no SLA, all requests at t = 0, seeds"
        f" {', '.join(map(str, bench.seeds))}; where nothing in the requests is random, one run."
        " The cases of G1 and one with outputs of 3,000 tokens on average, CV 1.3. Output tokens/s"
        " of `adaptive` over those of another on the same requests. Every rival, vLLM's own cap and"
        f" watermark among them (`static`), is tuned on seed {PILOT_SEED} with"
        f" {PILOT_REQUESTS} requests, for each case by itself, from a grid with the published"
        " constants in it; the best rival is the best on each draw of all tuned ones and the"
        " paper's live rule.",
        tuple(_rows(cases, by_case, bench.rivals)),
        (_table(cases, by_case, tuned),),
    )


def _tune(
    bench: Bench,
    cases: Sequence[Case],
    counts: Sequence[int],
    rivals: Sequence[str],
    settings: Settings,
) -> list[dict[str, str]]:
    """The best spec of each rival, by case."""
    if not settings.searches:
        return [
            {rival: settings.of("R4", case.name, rival).spec for rival in rivals} for case in cases
        ]
    tasks = [
        Task(case, PILOT_SEED, (point.spec,), min(n, PILOT_REQUESTS))
        for case, n in zip(cases, counts, strict=True)
        for rival in rivals
        for point in offline_points(rival)[: 2 if bench.small else None]
    ]
    found = bench.map(offline, tasks, "R4 sweep", is_ours)
    tuned = []
    for case in cases:
        best: dict[str, tuple[float, str]] = {}
        for task, one in zip(tasks, found, strict=True):
            if task.case is case:
                spec = task.specs[0]
                rival, mark = spec.partition(":")[0], (one[spec][0], spec)
                best[rival] = max(best.get(rival, (0.0, "")), mark)
        tuned.append({rival: spec for rival, (_, spec) in best.items()})
        for rival, (_, spec) in best.items():
            settings.keep("R4", case.name, rival, Setting(spec=spec))
    return tuned


def _replays(
    bench: Bench,
    cases: Sequence[Case],
    counts: Sequence[int],
    tuned: Sequence[dict[str, str]],
) -> list[list[Found]]:
    """Every policy, a rival with its tuned constants: by case and seed."""
    tasks = [
        Task(case, seed, (spec,), n)
        for case, n, of_case in zip(cases, counts, tuned, strict=True)
        for seed in seeds_of(case, n, bench.seeds)
        for spec in dict.fromkeys((ADAPTIVE, LIVE, *of_case.values()))
    ]
    found: dict[tuple[str, int], Found] = {}
    for task, one in zip(tasks, bench.map(offline, tasks, "R4 replays", is_ours), strict=True):
        found.setdefault((task.case.name, task.seed), {}).update(one)
    return [[f for (name, _), f in found.items() if name == case.name] for case in cases]


def _rows(
    cases: Sequence[Case], by_case: Sequence[list[Found]], only: Sequence[str] = ()
) -> list[Row]:
    """The figures; over the best of some rivals they have no target.

    Args:
        only: the rivals that ran; none: all.
    """
    some, at_least = (f" of {', '.join(only)} and the live rule", None) if only else ("", AT_LEAST)
    rows = []
    ratios = [
        [f[ADAPTIVE][0] / max(f[s][0] for s in f if s != ADAPTIVE) for f in found]
        for found in by_case
    ]
    for case, of_case in zip(cases, ratios, strict=True):
        ratio = geometric_mean([of_case])
        what = f"over the best rival{some}, {case.name}"
        rows.append(Row(f"r4_{case.name}", what, "ratio", ratio, at_least=at_least))
    what = f"over the best rival{some} of each, all cases"
    return [*rows, Row("r4_all", what, "ratio", geometric_mean(ratios))]


def _table(
    cases: Sequence[Case],
    by_case: Sequence[list[Found]],
    tuned: Sequence[dict[str, str]],
) -> str:
    lines = []
    for case, found, best in zip(cases, by_case, tuned, strict=True):
        specs = dict.fromkeys((ADAPTIVE, LIVE, *best.values()))
        for spec in specs:
            rate, preempted = (sum(f[spec][k] for f in found) / len(found) for k in (0, 1))
            over = geometric_mean([[f[ADAPTIVE][0] / f[spec][0] for f in found]]).value
            lines.append((case.name, f"`{spec}`", shown(rate), shown(over), shown(preempted)))
    head = "case", "policy", "output tokens/s", "`adaptive` over it", "preemptions per request"
    return markdown_table(head, lines)
