"""What G3 leaves out, put in one by one: how much each moves the ratios; and the first minute."""

from dataclasses import dataclass, replace

from benchmarks.contests.catalog import CONTESTS, Contest, sla_of
from benchmarks.contests.contest import PLAIN, Draw, Found, Task, Variant, search, tune
from benchmarks.contests.tuning import Setting
from benchmarks.report.bootstrap import geometric_mean, mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import COLD_S, late_share
from simulator.virtual.plan import engine_of, parse_policy

NAMES = ("257-62", "azure")  # of the contests: many short answers, and real lengths
P90_S = 5.0
AHEAD = "async_scheduling=true"
VARIANTS = (
    PLAIN,
    Variant("p90_delay", f"p90 of the delay within {P90_S:g} s beside", max_p90_delay_s=P90_S),
    Variant("async", "scheduling a step ahead", settings=AHEAD),
)
OWN_CODE = (
    Variant("own_code", "own code on the clock", charge_own_code=True),
    Variant(
        "own_code_async",
        "own code on the clock, scheduling a step ahead",
        settings=AHEAD,
        charge_own_code=True,
    ),
)
LOAD = 0.85  # of the fluid limit, for the first minute
WARM_UP = 1_000_000  # added to the seed
CHANGED = (
    "Capacity of `adaptive` over that of the best static engine (tuned as in G3, on every draw and"
    " in every variant), with one thing of the measurement changed"
)


@dataclass(frozen=True, slots=True)
class First:
    """Share of the times between tokens above the SLA in the first minute, %."""

    cold: float
    warm: float


def first_minute(task: Task) -> dict[str, First]:
    """Of ``adaptive`` and of the tuned static engine, on one draw."""
    draw = Draw(task)
    sla = sla_of(task.contest, draw.profile)
    rate = LOAD * draw.course.fluid_limit_per_s
    requests = tuple(r for r in draw.course.requests_at(rate) if r.arrival_s < 2 * COLD_S)
    before = Draw(replace(task, seed=task.seed + WARM_UP)).course.requests_at(rate)
    found = {}
    for name, spec in _policies(task.tuned):
        plan = parse_policy(spec, sla, engine_of(draw.profile))
        shares = [
            100 * (late_share(replay(requests, plan, ground), sla, 0.0, COLD_S) or 0.0)
            for ground in (Ground(draw.profile), Ground(draw.profile, warm_up=before))
        ]
        found[name] = First(*shares)
    return found


def _policies(tuned: Setting | None) -> tuple[tuple[str, str], ...]:
    if tuned is None:
        raise TypeError("the static engine is tuned before")
    return ("adaptive", "adaptive"), ("best static", tuned.of("static"))


@dataclass(frozen=True, slots=True)
class _Raced:
    """The contests with their tuned static engine, and what the variants came to."""

    contests: list[Contest]
    tuned: list[Setting]
    rows: list[Row]
    table: str


def run(bench: Bench) -> Section:
    """Tune on the pilot's draws, then every variant; the first minute."""
    raced = _race(bench, VARIANTS)
    rows = raced.rows
    firsts = [
        Task(contest, seed, bench.small, best)
        for contest, best in zip(raced.contests, raced.tuned, strict=True)
        for seed in bench.seeds
    ]
    minutes = iter(bench.map(first_minute, firsts, "first minute"))
    for contest in raced.contests:
        rows += _first_rows(contest, [next(minutes) for _ in bench.seeds])
    return Section(
        "G3-variants",
        "what a capacity leaves out, and the first minute",
        f"{CHANGED}: the 90th percentile of the scheduling delay within {P90_S:g} s beside the"
        " median within 2 s; asynchronous scheduling, as vLLM does in production, for both. First"
        f" minute: at {LOAD:g} of the fluid limit, the share of the times between tokens above the"
        f" SLA in the first {COLD_S:g} s: of an engine that has served nothing, and of one that"
        " has served another draw of the same workload."
        f" Seeds {', '.join(map(str, bench.seeds))}.",
        tuple(rows),
        (raced.table,),
    )


def own_code(bench: Bench) -> Section:
    """The same with what this project's own code takes."""
    raced = _race(bench, OWN_CODE)
    return Section(
        "G3-own-code",
        "what our own code costs of a capacity",
        f"{CHANGED}: the CPU time of this project's own code is on the clock of every step, as"
        " measured while the replay runs. vLLM's is in the profile, of both. Where every step knows"
        " the outputs of the one before, own code makes each step longer; scheduling a step ahead,"
        " as vLLM does in production, hides it behind the step that runs. Measure it on an idle"
        " machine with one worker: other work shows through the caches."
        f" Seeds {', '.join(map(str, bench.seeds))}.",
        tuple(raced.rows),
        (raced.table,),
    )


def _race(bench: Bench, variants: tuple[Variant, ...]) -> _Raced:
    contests = [c for c in CONTESTS if c.name in NAMES][: 1 if bench.small else None]
    tuned = bench.map(tune, [Task(c, small=bench.small) for c in contests], "variants, tuning")
    tasks = [
        Task(
            replace(contest, default=None, algorithm_2=False),
            seed,
            bench.small,
            best,
            variant=variant,
        )
        for variant in variants
        for contest, best in zip(contests, tuned, strict=True)
        for seed in bench.seeds
    ]
    done = iter(bench.map(search, tasks, "variants"))
    rows, lines = [], []
    for variant in variants:
        for contest in contests:
            found = [next(done) for _ in bench.seeds]
            ratio = geometric_mean([[f.over("best_static") for f in found]])
            what = f"over best static, {contest.name}, {variant.what}"
            rows.append(Row(f"g3v_{variant.name}_{contest.name}", what, "ratio", ratio))
            lines.append((contest.name, variant.what, *_rates(found)))
    headings = ("workload", "variant", "adaptive, /s", "best static, /s")
    return _Raced(contests, tuned, rows, markdown_table(headings, lines))


def _rates(found: list[Found]) -> tuple[str, str]:
    one, other = (
        ", ".join(shown(f.per_s[name]) for f in found) for name in ("adaptive", "best_static")
    )
    return one, other


def _first_rows(contest: Contest, found: list[dict[str, First]]) -> list[Row]:
    rows = []
    for name in found[0]:
        id_ = name.replace(" ", "_")
        for start, shares in (
            ("cold", [f[name].cold for f in found]),
            ("warm", [f[name].warm for f in found]),
        ):
            what = f"late in the first minute, {start}, {name}, {contest.name}"
            rows.append(Row(f"first_{start}_{id_}_{contest.name}", what, "%", mean(shares)))
    return rows
