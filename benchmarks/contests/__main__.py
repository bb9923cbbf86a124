"""``make results``: the policy `adaptive` against static engines and published schedulers.

A contest is a workload on an engine; each rival is tuned for it on another seed. ``--only`` takes
parts, or contests as ``capacity:azure``. benchmarks/contests/settings.json has the settings of
earlier searches; ``--search`` searches them anew. Prints tables, writes docs/results/PART.md for
whole parts, and ends with one line of JSON. Results are cached in ``.cache/results.sqlite`` by the
code that made them, so a bench that was stopped can be continued.
"""

from collections.abc import Mapping, Sequence
from math import prod

from benchmarks.contests.catalog import scenarios
from benchmarks.contests.measure import Search, Task, measure, search
from benchmarks.contests.scenarios import PAPER, STATIC, Capacity, Contest
from benchmarks.contests.settings import Settings
from benchmarks.contests.sweeps import SWEEPS
from benchmarks.report.command import CACHE, add_seeds, bench_of, end, parser_of, seeds_of, show
from benchmarks.report.document import markdown_table, write_page
from benchmarks.report.interval import geometric_mean
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench

AT_LEAST = {"capacity": 1.0, "shifting": 1.1, "offline": 0.995, "classes": 1.05, "disturbed": 1.0}
Values = Mapping[tuple[str, str], Sequence[float]]  # by contest and spec: of each seed


def tuned(
    bench: Bench, contests: Sequence[Contest], settings: Settings, *, again: bool
) -> dict[str, dict[str, str]]:
    """The best spec of each rival, by contest; searches begin at the best static setting."""
    part = contests[0].part
    known = {
        one.name: {} if again or bench.small else settings.of(part, one.name) for one in contests
    }
    for static in (True, False):
        tasks = [
            Search(one, rival, bench.small, known[one.name].get(STATIC, ""))
            for one in contests
            for rival in _rivals(bench, one)
            if (rival == STATIC) is static and rival not in known[one.name]
        ]
        for task, spec in zip(tasks, bench.map(search, tasks, f"{part} search"), strict=True):
            known[task.contest.name][task.rival] = spec
            if not bench.small:
                settings.keep(part, task.contest.name, {task.rival: spec})
    return {one.name: {r: known[one.name][r] for r in _rivals(bench, one)} for one in contests}


def _rivals(bench: Bench, one: Contest) -> list[str]:
    rivals = [r for r in one.rivals if not bench.rivals or r in (STATIC, *bench.rivals)]
    return rivals[:2] if bench.small else rivals


def one_for_all(
    bench: Bench, contests: Sequence[Contest], best: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """The setting of each rival with the best geometric mean over the contests, on the pilot seed.

    Candidates are the settings that were tuned for one contest.
    """
    found = {}
    for rival in best[contests[0].name]:
        specs = list(dict.fromkeys(best[one.name][rival] for one in contests))
        tasks = [Task(one, spec, PILOT_SEED, bench.small) for spec in specs for one in contests]
        values = iter(bench.map(measure, tasks, f"one {rival} for all"))
        means = {spec: prod(next(values) for _ in contests) for spec in specs}
        found[rival] = max(means, key=lambda spec: means[spec])
    return found


def run(bench: Bench, contests: Sequence[Contest], settings: Settings, *, again: bool) -> Section:
    """Tune on the pilot seed, then measure every policy on every seed."""
    part = contests[0].part
    best = tuned(bench, contests, settings, again=again)
    alike = [one for one in contests if isinstance(one, Capacity) and one.profile == PAPER]
    shared = one_for_all(bench, alike, best) if len(alike) > 1 else {}
    tasks = {}
    for one in contests:
        plain = dict.fromkeys([one.ours, *one.others, *best[one.name].values()])
        if one in alike:
            plain |= dict.fromkeys(shared.values())
        again_of = {best[one.name][r]: r for r in one.each_seed if r in best[one.name]}
        for spec in plain:
            tasks[one.name, spec] = [Task(one, spec, seed, bench.small) for seed in bench.seeds]
        for spec, rival in again_of.items():
            tasks[one.name, f"{spec} (tuned for each seed)"] = [
                Task(one, spec, seed, bench.small, rival) for seed in bench.seeds
            ]
    flat = [task for of in tasks.values() for task in of]
    made = iter(bench.map(measure, flat, part))
    values = {key: [next(made) for _ in of] for key, of in tasks.items()}
    rows = rows_of(contests, values, best, {one.name: shared for one in alike})
    ours, lines = contests[0].ours, []
    for (name, spec), of in values.items():
        over = geometric_mean([_over(values, name, ours, spec)]).value
        lines.append((name, f"`{spec}`", ", ".join(map(shown, of)), shown(over)))
    text = (
        f"{contests[0].figure}; seeds {', '.join(map(str, bench.seeds))}. Every ratio is `{ours}`"
        " over another on the same seed. Rivals, vLLM's own limits among them, are tuned for each"
        f" scenario on seed {PILOT_SEED}: published constants, a grid, then better neighbours while"
        " there is one. The best is the best on each seed."
    )
    table = markdown_table(("scenario", "policy", "by seed", "ours over it"), lines)
    return Section(part, str(contests[0].__doc__).splitlines()[0], text, tuple(rows), (table,))


def _over(values: Values, name: str, ours: str, spec: str) -> list[float]:
    return [a / b for a, b in zip(values[name, ours], values[name, spec], strict=True)]


def rows_of(
    contests: Sequence[Contest],
    values: Values,
    best: Mapping[str, Mapping[str, str]],
    shared: Mapping[str, Mapping[str, str]],
) -> list[Row]:
    """The figures: over all contests, then over the best tuned rival of each.

    Args:
        shared: by contest, the one setting of each rival for all.
    """
    part, ours = contests[0].part, contests[0].ours
    least: dict[str, list[float]] = {
        one.name: [
            min(of)
            for of in zip(
                *(
                    _over(values, name, ours, spec)
                    for name, spec in values
                    if name == one.name and spec.partition(" ")[0] in best[one.name].values()
                ),
                strict=True,
            )
        ]
        for one in contests
    }

    def row(id_: str, what: str, ratios: Sequence[Sequence[float]], target: float | None) -> Row:
        return Row(f"{part}_{id_}", what, "ratio", geometric_mean(ratios), at_least=target)

    rows = [row("best", "over the best tuned rival, all", list(least.values()), AT_LEAST[part])]
    for rival in best[contests[0].name]:
        ratios = [_over(values, one.name, ours, best[one.name][rival]) for one in contests]
        rows.append(row(rival, f"over {rival}, tuned on the pilot, all", ratios, None))
    for rival in next(iter(shared.values()), {}):
        ratios = [_over(values, name, ours, of[rival]) for name, of in shared.items()]
        rows.append(row(f"one_{rival}", f"over {rival}, one setting for {PAPER}", ratios, None))
    for other in contests[0].others:
        ratios = [_over(values, one.name, ours, other) for one in contests]
        rows.append(row(f"as_is_{other}", f"over {other}, as it is, all", ratios, None))
    for name, of_draws in least.items():
        what = f"over the best tuned rival, {name}"
        rows.append(row(f"best_{name}", what, [of_draws], AT_LEAST[part]))
    return rows


def main() -> None:
    every = scenarios()
    words = [*every, *(f"{part}:{one.name}" for part, of in every.items() for one in of)]
    parser = parser_of(__doc__, words, "PART")
    parser.set_defaults(only=list(every))
    add_seeds(parser)
    parser.add_argument("--rival", nargs="+", choices=SWEEPS, default=[], help="only these")
    parser.add_argument("--search", action="store_true", help="search settings anew")
    args = parser.parse_args()
    rows: list[Row] = []
    settings = Settings()
    with bench_of(args, seeds_of(args.seeds), CACHE / "results.sqlite", tuple(args.rival)) as bench:
        for part, of in every.items():
            contests = [one for one in of if {part, f"{part}:{one.name}"} & {*args.only}]
            if not contests:
                continue
            section = run(
                bench, contests[:1] if args.small else contests, settings, again=args.search
            )
            rows += section.rows
            show(section)
            if len(contests) == len(of) and not (args.small or args.rival):
                write_page(part, section.markdown(f"make results ARGS='--only {part}'"))
    end("results", rows)


if __name__ == "__main__":
    main()
