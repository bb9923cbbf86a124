"""The best static setting of a row: a grid of cap x chunk by successive halving on J, refined."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.contests.tuning import Setting, on_line
from benchmarks.disturbed.replays import Draw, Figures, replayed
from benchmarks.disturbed.rows import Row
from benchmarks.report.seeds import PILOT_SEED

STATIC = "static"
CAPS = (1.0, 1.5, 2.5)  # times the decodes of a step of D, beside vLLM's default
# Times the prompt tokens that fit such a step, beside vLLM's default budget.
CHUNKS = (0.3, 0.5, 0.7, 0.85, 1.0, 1.3, 2.0, 4.0)
LOOK_S = 120.0  # of arrivals, at least: J counts from the second minute on


@dataclass(frozen=True, slots=True)
class Rung:
    """One round of a search.

    Args:
        share: of the row's requests.
        keep: how many of the settings go on to the next round.
    """

    share: float
    seeds: tuple[int, ...]
    keep: int


RUNGS = (
    Rung(0.3, (PILOT_SEED,), 3),
    Rung(1.0, (PILOT_SEED, PILOT_SEED - 1), 1),
)
SMALL_RUNGS = (Rung(0.02, (PILOT_SEED,), 2), Rung(0.05, (PILOT_SEED, PILOT_SEED - 1), 1))


@dataclass(frozen=True, slots=True)
class Search:
    """A row to be searched; small: only to see that it works."""

    row: Row
    small: bool = False


@dataclass(frozen=True, slots=True)
class Best:
    """What a search found.

    Args:
        j: of the last round, geometric mean over its seeds.
        candidates: settings of the grid, and those between the best of it and its neighbours.
    """

    setting: Setting
    j: float
    candidates: int


def search(task: Search) -> Best:
    """The best static setting of a row."""
    draw = Draw(task.row)
    settings = grid(draw)

    least = 0.0 if task.small else draw.share_of(LOOK_S)

    def figures(setting: Setting, seed: int, share: float) -> Figures:
        return replayed(draw, setting.of(STATIC), seed, max(share, least))

    rungs = SMALL_RUNGS if task.small else RUNGS
    best = halved(settings, rungs, figures)
    near = neighbours(best[0], settings)
    setting, j = min(best, halved(near, rungs[-1:], figures), key=lambda found: found[1])
    return Best(setting, j, len(settings) + len(near))


def grid(draw: Draw) -> list[Setting]:
    """Caps around B = q D E[out] x chunks around what fits a step of D beside B decodes.

    ``max_num_batched_tokens`` is B + chunk, since decodes take their part of it. vLLM's default of
    each is among them.
    """
    profile, itl_s = draw.profile, draw.itl_s
    decodes = max(draw.rate_per_s * itl_s * draw.stats.mean_output, 1.0)
    line = on_line(profile, draw.stats, itl_s, round(decodes))
    room = max(line.chunk - line.cap, 1)
    budgets = {round(decodes + room * factor) for factor in CHUNKS}
    caps = {round(decodes * factor) for factor in CAPS}
    most_seqs, most_tokens = profile.max_num_seqs, profile.max_num_batched_tokens
    return sorted(
        {
            Setting(min(cap, budget, most_seqs), min(budget, most_tokens))
            for cap, budget in product({*caps, most_seqs}, {*budgets, most_tokens})
        },
        key=lambda s: (s.chunk, -s.cap),
    )


def neighbours(best: Setting, settings: Sequence[Setting]) -> list[Setting]:
    """Half way from a setting to the next smaller and larger cap and chunk of the grid."""
    caps = _between(best.cap, {s.cap for s in settings})
    chunks = _between(best.chunk, {s.chunk for s in settings})
    uncapped = best.cap == best.chunk  # a step has a token of each request at least
    found = {Setting(cap, best.chunk) for cap in caps if cap <= best.chunk}
    found |= {Setting(chunk if uncapped else min(best.cap, chunk), chunk) for chunk in chunks}
    return sorted(
        found - set(settings),
        key=lambda s: (s.chunk, -s.cap),
    )


def _between(value: int, known: Collection[int]) -> list[int]:
    below = max((other for other in known if other < value), default=value)
    above = min((other for other in known if other > value), default=value)
    return [round(math.sqrt(value * other)) for other in (below, above)]


def halved(
    settings: Sequence[Setting],
    rungs: Sequence[Rung],
    figures: Callable[[Setting, int, float], Figures],
) -> tuple[Setting, float]:
    """The best setting, and its J: each rung keeps the best for a longer look.

    Args:
        settings: by chunk, caps from the largest on.
        figures: of a setting, by seed and share of the requests.
    """
    ranked: list[tuple[float, Setting]] = []
    for rung in rungs:
        scores = _scores(settings, rung, figures)
        ranked = sorted(((j, s) for s, j in scores.items()), key=lambda pair: pair[0])
        settings = [s for s in settings if s in {s for _, s in ranked[: rung.keep]}]
    j, best = ranked[0]
    return best, j


def _scores(
    settings: Sequence[Setting],
    rung: Rung,
    figures: Callable[[Setting, int, float], Figures],
) -> dict[Setting, float]:
    """J by setting. A cap that a larger one's replay never reached is left out: it is the same."""
    scores: dict[Setting, float] = {}
    chunk, peak = 0, math.inf
    for setting in settings:
        if setting.chunk == chunk and setting.cap >= peak:
            continue
        found = [figures(setting, seed, rung.share) for seed in rung.seeds]
        scores[setting] = math.prod(one.j for one in found) ** (1 / len(found))
        chunk, peak = setting.chunk, max(one.peak_running for one in found)
    return scores
