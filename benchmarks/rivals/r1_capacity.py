"""R1: capacity at a percentile of every gap between tokens, against the named rivals.

Each rival is tuned for each workload on the pilot's draw, and has one setting beside that which
serves all contests of a profile; then every draw of the figures is searched with both. Outputs like
a reasoning model's take as long as all the others together, and are a part of their own
(``R1-reasoning``), without one setting for all.
"""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.contests.catalog import CONTESTS, Contest, on_paper
from benchmarks.contests.contest import LEFT_S, NEAR, Draw, Task
from benchmarks.contests.entry import (
    MORE,
    STEPS,
    Choice,
    Chosen,
    Entry,
    Tuned,
    Tuning,
    capacity,
    choose,
    is_ours,
    rivals_alone,
    tune_rival,
    tune_static,
)
from benchmarks.contests.sweeps import LONGEST, LONGEST_TOKENS, SWEEPS, published
from benchmarks.report.rows import Section
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench
from benchmarks.rivals.r1_raced import (
    ADAPTIVE,
    ALL,
    SHARED,
    WORTH,
    Raced,
    capacities_table,
    rows_of,
    settings_table,
)
from benchmarks.rivals.settings import Setting, Settings

LONG = on_paper("long-prompts", "long-prompts:257,447", 0.1)
# Answers that stop in their middle let an engine take more than the fluid limit for a while.
REASONING = replace(on_paper("reasoning", "reasoning:257,3000,1.3", 0.1), top=1.5)
RUN_S = 120.0  # what is left for good in a shorter run is too few for `LEFT_S`
GROUNDS = (*(replace(c, run_s=max(c.run_s, RUN_S)) for c in CONTESTS), LONG)
CONTESTS_ALIKE = tuple(c.name for c in GROUNDS if c.profile == SHARED)


def run(bench: Bench, names: Sequence[str], settings: Settings) -> Section:
    """Tune all rivals, choose one setting of each for all, then race on every seed.

    Args:
        names: of the contests; none: all of them.
        settings: of earlier searches, where nothing is to be searched.
    """
    contests = tuple(c for c in GROUNDS if not names or c.name in names)
    contests = contests[:1] if bench.small and not names else contests
    return _run(bench, "R1", contests, settings)


def run_reasoning(bench: Bench, names: Sequence[str], settings: Settings) -> Section:
    """The same with outputs like a reasoning model's."""
    return _run(bench, "R1-reasoning", (REASONING,), settings)


def _run(bench: Bench, name: str, contests: tuple[Contest, ...], settings: Settings) -> Section:
    rivals = bench.asked_rivals(tuple(SWEEPS)[:2] if bench.small else SWEEPS)
    of = REASONING.name if contests == (REASONING,) else ""
    found = Raced(contests, rivals, of=of, all_rivals=not bench.rivals)
    if settings.searches:
        _tune(bench, found)
        _choose(bench, found)
        _keep(name, found, settings)
    else:
        _recall(name, found, settings)
    _race(bench, found)
    what = " with outputs like a reasoning model's" if contests == (REASONING,) else ""
    return Section(
        name,
        f"capacity at p99 of every gap{what}, against named rivals",
        _text(bench, found),
        tuple(rows_of(found)),
        (capacities_table(found), settings_table(found)),
    )


def _tune(bench: Bench, found: Raced) -> None:
    pilots = [Task(c, small=bench.small) for c in found.contests]
    statics = bench.map(tune_static, pilots, "R1 static", rivals_alone)
    tunings = [
        Tuning(task, rival, static)
        for task, static in zip(pilots, statics, strict=True)
        for rival in found.rivals
    ]
    done = bench.map(tune_rival, tunings, "R1 rivals", rivals_alone)
    for tuning, tuned in zip(tunings, done, strict=True):
        found.tuned[tuning.task.contest.name, tuning.rival] = tuned


def _choose(bench: Bench, found: Raced) -> None:
    """The setting of each rival with the best geometric mean on the pilot's draws."""
    alike = tuple(found.alike)
    if len(alike) < 2:
        return
    choices = []
    for rival in found.rivals:
        tuned = tuple(found.tuned[c.name, rival] for c in alike)
        points = tuple(dict.fromkeys([*(one.point for one in tuned), published(rival)]))
        choices.append(Choice(alike, bench.small, points, tuned))
    done = bench.map(choose, choices, "R1 one for all", rivals_alone)
    found.one = dict(zip(found.rivals, done, strict=True))


def _keep(name: str, found: Raced, settings: Settings) -> None:
    for (contest, rival), tuned in found.tuned.items():
        setting = Setting(spec=tuned.point.spec, fracs={contest: tuned.frac})
        settings.keep(name, contest, rival, setting)
    if _all_alike(found):
        for rival, one in found.one.items():
            fracs = {c.name: frac for c, frac in zip(found.alike, one.fracs, strict=True)}
            settings.keep(name, ALL, rival, Setting(spec=one.point.spec, fracs=fracs))


def _recall(name: str, found: Raced, settings: Settings) -> None:
    """What earlier searches had ended with, in the place of ``_tune`` and ``_choose``."""
    for contest in found.contests:
        for rival in found.rivals:
            known = settings.of(name, contest.name, rival)
            found.tuned[contest.name, rival] = Tuned(known.point, known.fracs[contest.name])
    if _all_alike(found):
        for rival in found.rivals:
            known = settings.of(name, ALL, rival)
            fracs = tuple(known.fracs[c.name] for c in found.alike)
            found.one[rival] = Chosen(known.point, fracs)


def _all_alike(found: Raced) -> bool:
    """Whether one setting is that for all; chosen for some of the contests it is another one."""
    return {c.name for c in found.alike} == set(CONTESTS_ALIKE)


def _race(bench: Bench, found: Raced) -> None:
    entries, pilots = [], []
    for contest in found.contests:
        near = {ADAPTIVE: NEAR[ADAPTIVE]}
        if contest in found.alike:
            place = found.alike.index(contest)
            for rival in found.worth_one:
                near[found.one[rival].point.spec] = found.one[rival].fracs[place]
        for rival in found.worth(contest):
            tuned = found.tuned[contest.name, rival]
            near[tuned.point.spec] = tuned.frac
        pilots.append(Entry(contest, PILOT_SEED, bench.small, ADAPTIVE, NEAR[ADAPTIVE]))
        entries += [
            Entry(contest, seed, bench.small, spec, frac)
            for spec, frac in near.items()
            for seed in bench.seeds
        ]
    done = bench.map(capacity, [*entries, *pilots], "R1 capacities", is_ours)
    for entry, per_s in zip(entries, done, strict=False):
        found.per_s.setdefault((entry.contest.name, entry.spec), []).append(per_s)
    for entry, per_s in zip(pilots, done[len(entries) :], strict=True):
        draw = Draw(Task(entry.contest, entry.seed, entry.small))
        found.pilot[entry.contest.name] = draw.frac(per_s)


def _workloads(found: Raced) -> str:
    if found.contests == (REASONING,):
        return f"`{REASONING.workload}` (outputs of 3,000 tokens on average, CV 1.3) on `{SHARED}`."
    return (
        f"The contests of G3, and on `{SHARED}` `{LONG.workload}` (5% of the prompts have 16k to"
        " 32k tokens)."
    )


def _text(bench: Bench, found: Raced) -> str:
    return (
        f"{_workloads(found)} By the criteria of G3 over {RUN_S:g} s at least, and besides of the"
        " prompt tokens that came no more are left to compute, on average over the second half of"
        f" a run, than come in {LEFT_S:g} s and the longest prompt has: some rivals do not serve in"
        " the order of arrival, and half of the requests have a short delay as well where long"
        " prompts are left for good."
        f" Seeds {', '.join(map(str, bench.seeds))}. Rivals: {', '.join(found.rivals)}, each with"
        f" the engine's two limits, its `{LONGEST}` ({', '.join(map(str, LONGEST_TOKENS))}) and its"
        f" own constants tuned together on the draw of seed {PILOT_SEED}, for each workload by"
        " itself: from the best static setting and from the"
        f" published constants to the better neighbour, {STEPS[0]:.0%} away in a constant, or"
        " another of its choices. The best rival is the best on each draw of those that were"
        " searched there. One setting for all: of the settings tuned for the contests on"
        f" `{SHARED}` and the published one, the best in geometric mean on the pilot's draws, of"
        f" each rival, as far as one is seen that does no more than {MORE:.0%} better than what was"
        " tuned for a contest. What reached less than"
        f" {WORTH:g} of the best of them on the pilot's draw was not searched on the others, and"
        " has no rates by seed. Rivals that go by a step"
        " time know the profile's exactly (the refiner in a table, whose steps are the bench's);"
        " `adaptive` has to learn it. `adaptive` has one set of"
        " constants, on vLLM's default engine, everywhere."
    )
