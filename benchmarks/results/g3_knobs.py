"""G3's static engine with its other knobs turned too: what its capacity gains by them."""

from dataclasses import dataclass

from benchmarks.contests.catalog import CONTESTS
from benchmarks.contests.contest import NEAR, STATIC, Draw, Task, tune
from benchmarks.contests.tuning import FINE, Setting, climb
from benchmarks.report.bootstrap import geometric_mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench

WATERMARKS = (0.01, 0.03)  # vLLM's default is none
SHARES = (0.5, 0.25)  # of the step's prompt tokens that a single prompt may take


@dataclass(frozen=True, slots=True)
class Turned:
    """A draw's best static engine by cap and chunk alone, and with the other knobs, requests/s."""

    two_knobs_per_s: float
    all_knobs_per_s: float
    spec: str


def knobs(setting: Setting) -> tuple[str, ...]:
    """The other settings of vLLM's scheduler that move a step's batch, each at a few values."""
    prefill = max(setting.chunk - setting.cap, 1)
    thresholds = dict.fromkeys(max(round(prefill * share), 1) for share in SHARES)
    return (
        *(f"watermark={share}" for share in WATERMARKS),
        *(f"long_prefill_token_threshold={tokens}" for tokens in thresholds),
    )


def turn(task: Task) -> Turned:
    """Cap and chunk on this draw; then one knob after the other, each kept where it gains."""
    if task.tuned is None:
        raise TypeError("the static engine is tuned before")
    race = Draw(task).race(NEAR[STATIC])
    best = climb(lambda s: race.enter(s.of(STATIC)), (task.tuned,), () if task.small else FINE)
    two, spec = race.per_s, best.of(STATIC)
    for knob in knobs(best):
        if race.enter(f"{spec},{knob}"):
            spec = f"{spec},{knob}"
    # What the knobs allow: cap and chunk again, under them.
    turned = spec.removeprefix(best.of(STATIC))
    if turned and not task.small:
        best = climb(lambda s: race.enter(s.of(STATIC) + turned), (best,), FINE)
    return Turned(two, race.per_s, race.spec)


def run(bench: Bench) -> Section:
    """Every contest of G3, its static engine tuned on the pilot's draw and then on each."""
    contests = CONTESTS[: 1 if bench.small else None]
    tuned = bench.map(tune, [Task(c, small=bench.small) for c in contests], "knobs, tuning")
    tasks = [
        Task(contest, seed, bench.small, best)
        for contest, best in zip(contests, tuned, strict=True)
        for seed in bench.seeds
    ]
    done = iter(bench.map(turn, tasks, "knobs"))
    by_contest = [[next(done) for _ in bench.seeds] for _ in contests]
    gains = [[t.all_knobs_per_s / t.two_knobs_per_s for t in found] for found in by_contest]
    rows = [Row("g3k_all", "all knobs over two, all contests", "ratio", geometric_mean(gains))]
    rows += [
        Row(f"g3k_{c.name}", f"all knobs over two, {c.name}", "ratio", geometric_mean([gain]))
        for c, gain in zip(contests, gains, strict=True)
    ]
    lines = [
        (
            contest.name,
            ", ".join(shown(t.two_knobs_per_s) for t in found),
            ", ".join(shown(t.all_knobs_per_s) for t in found),
            ", ".join(dict.fromkeys(f"`{t.spec}`" for t in found)),
        )
        for contest, found in zip(contests, by_contest, strict=True)
    ]
    return Section(
        "G3-knobs",
        "the static engine's other knobs",
        "G3 tunes the static engine in max_num_seqs and max_num_batched_tokens on every draw. Here"
        f" its watermark ({', '.join(map(str, WATERMARKS))}) and long_prefill_token_threshold (a"
        f" share of {' and '.join(map(str, SHARES))} of the prompt tokens in a step) are tried on"
        " top, one after the other, each kept where the capacity gains 1% or more, and then cap and"
        " chunk once more. No workload of G3 shares prefixes or has priorities, and asynchronous"
        " scheduling is one of G3-variants: there is no other knob of vLLM's scheduler that moves"
        f" what a step does. Seeds {', '.join(map(str, bench.seeds))}.",
        tuple(rows),
        (
            markdown_table(
                ("workload", "cap and chunk, /s", "all knobs, /s", "the best of each draw"), lines
            ),
        ),
    )
