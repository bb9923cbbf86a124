"""G8 and G9: a new replica's cap, and the rate of violations; on ``BareEngine``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.cost.bare_engine import BareEngine
from benchmarks.report.bootstrap import mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.workers import Bench
from controller.config import BatchingConfig, parse_batching
from controller.fleet.loop import ControlLoop
from controller.records import BatchLimits, StepSample
from replicas.profiles.profile import LinearCost, StepNoise, StepProfile
from replicas.profiles.profile_file import load_profile

PROFILE = "paper-fig3"
SLA_MS = 50.0
MEAN_INPUT, MEAN_OUTPUT = 257.0, 447.0

STEPS = 20_000
PERCENTILES = (99, 95, 90)
WRONG = ((0.7, 0.03), (1.3, 0.05))  # times the true step time, and the noise's CV
AROUND = 0.2  # of the asked rate
FIRST_S = 20.0  # in which a group learns the first model

CAP_S = 180.0  # a replica's life
NOISE_CV = 0.03
NEAR = 0.05  # of the settled value
CAPS_AVERAGED = 4  # 2 s of them, at two a second


@dataclass(frozen=True, slots=True)
class Violations:
    """A run under saturating load whose first model is that of another card."""

    percentile: int
    wrong: float
    noise_cv: float
    seed: int
    steps: int


def violations(task: Violations) -> tuple[float, float]:
    """Share of the time between tokens above the SLA, %: of the tokens, and of the steps."""
    profile, loop = load_profile(PROFILE), ControlLoop()
    cost = profile.cost
    if not isinstance(cost, LinearCost):
        raise TypeError(f"{PROFILE} is not a line")
    parts = cost.fixed_s, cost.per_decode_s, cost.per_kv_s, cost.per_prefill_s, cost.per_context_s
    unlike = replace(profile, cost=LinearCost(*(part * task.wrong for part in parts)))
    other = _engine(task.percentile, task.noise_cv, task.seed + 1000, profile=unlike)
    _caps({"other": other}, loop, FIRST_S)
    engine = _engine(task.percentile, task.noise_cv, task.seed, other.now_s)
    config, samples = engine.governor.config, list[StepSample]()
    limits: BatchLimits | None = None
    due_s = engine.now_s
    while len(samples) < task.steps:
        if limits is not None:
            engine.apply(limits)
        limits = loop.exchange(engine.report("new"), config, engine.now_s)
        due_s += config.period_s
        while engine.now_s < due_s:
            samples.append(engine.step())
    late = np.array([s.duration_s > SLA_MS / 1000 for s in samples if s.decodes])
    decodes = np.array([s.decodes for s in samples if s.decodes])
    return float(100 * (late @ decodes) / decodes.sum()), float(100 * late.mean())


def _config(percentile: int) -> BatchingConfig:
    return parse_batching(
        {"policy": "adaptive", "sla": {"itl_ms": SLA_MS, "percentile": percentile}}
    )


def _engine(
    percentile: int,
    noise_cv: float,
    seed: int,
    now_s: float = 0.0,
    profile: StepProfile | None = None,
) -> BareEngine:
    config, noise = _config(percentile), StepNoise(noise_cv, seed)
    profile = profile or load_profile(PROFILE)
    return BareEngine(config, profile, noise, MEAN_INPUT, MEAN_OUTPUT, seed, now_s)


def join(task: tuple[int, float]) -> tuple[float, float]:
    """Seconds until the published cap of a new replica is settled: joining others, and alone.

    Args:
        task: the seed, and how long each replica lives, seconds.
    """
    seed, life_s = task
    loop, old = ControlLoop(), _engine(99, NOISE_CV, seed)
    alone = _caps({"old": old}, loop, life_s)["old"]
    new = _engine(99, NOISE_CV, seed + 1000, old.now_s)
    both = _caps({"old": old, "new": new}, loop, old.now_s + life_s)
    return seconds_until_settled(both["new"]), seconds_until_settled(alone)


def _caps(
    engines: dict[str, BareEngine], loop: ControlLoop, until_s: float
) -> dict[str, list[tuple[float, int]]]:
    """Run some replicas of one group side by side.

    Returns:
        Of each the seconds since its first report, and the cap published then.
    """
    first, limits = next(iter(engines.values())), dict[str, BatchLimits]()
    config = first.governor.config
    caps: dict[str, list[tuple[float, int]]] = {name: [] for name in engines}
    due_s = start_s = first.now_s
    while due_s < until_s:
        for name, engine in engines.items():
            while engine.now_s < due_s:
                engine.step()
            if name in limits:
                engine.apply(limits[name])  # the limits of one exchange come with the next
            limits[name] = loop.exchange(engine.report(name), config, engine.now_s)
            caps[name].append((due_s - start_s, limits[name].max_running))
        due_s += config.period_s
    return caps


def seconds_until_settled(caps: Sequence[tuple[float, int]]) -> float:
    """The time from which on the mean of the last ``CAPS_AVERAGED`` caps is near the settled one.

    Near: within ``NEAR``. Settled: the median over the last third.

    Args:
        caps: seconds, and the cap published then.
    """
    at_s, cap = np.array(caps, dtype=float).T
    settled = float(np.median(cap[-(len(cap) // 3) :]))
    smooth = np.convolve(cap, np.full(CAPS_AVERAGED, 1 / CAPS_AVERAGED), "valid")
    off = np.flatnonzero(np.abs(smooth - settled) > NEAR * settled)
    return float(at_s[min(off[-1] + CAPS_AVERAGED, len(at_s) - 1)]) if len(off) else 0.0


def run(bench: Bench) -> Section:
    """Both parts."""
    steps, life_s = (300, 20.0) if bench.small else (STEPS, CAP_S)
    kinds = [(percentile, *wrong) for percentile in PERCENTILES for wrong in WRONG]
    tasks = [Violations(*kind, seed, steps) for seed in bench.seeds for kind in kinds]
    done = iter(bench.map(violations, tasks, "G9 violations"))
    by_seed = [[next(done) for _ in kinds] for _ in bench.seeds]
    joined = bench.map(join, [(seed, life_s) for seed in bench.seeds], "G8 new replica")
    rows, lines = [], []
    for k, (percentile, wrong, noise_cv) in enumerate(kinds):
        asked = 100.0 - percentile
        rate = mean([found[k][0] for found in by_seed])
        what = (
            f"violations at p{percentile}, first model {wrong:g} of the truth, noise {noise_cv:g}"
        )
        low, high = asked * (1 - AROUND), asked * (1 + AROUND)
        rows.append(Row(f"g9_p{percentile}_{wrong:g}", what, "%", rate, low, high))
        of_steps = mean([found[k][1] for found in by_seed]).value
        lines.append((f"p{percentile}", f"{wrong:g}", shown(rate.value), shown(of_steps)))
    warm, cold = (mean([one[k] for one in joined]) for k in (0, 1))
    rows.append(Row("g8_warm_s", "cap settled, joining a replica", "s", warm, at_most=10))
    rows.append(Row("g8_cold_s", "cap settled, alone", "s", cold, at_most=20))
    return Section(
        "G9",
        "violations at the asked rate, and a new replica's cap (G8, G9)",
        f"Profile `{PROFILE}`, SLA {SLA_MS:g} ms, a queue that never ends, prompts and answers"
        f" exponential with means {MEAN_INPUT:g} and {MEAN_OUTPUT:g}. G9: {steps} steps with"
        " lognormal noise; the first model is that of a card whose steps take 0.7 or 1.3 times as"
        " long; the rate counts every time between two tokens. G8: seconds from a replica's first"
        " report until its published cap,"
        f" averaged over 2 s, stays within {NEAR:.0%} of its median over the last third of"
        f" {life_s:g} s; noise {NOISE_CV:g}.",
        tuple(rows),
        (markdown_table(("percentile", "first model", "% of tokens", "% of steps"), lines),),
        max_tokens=None,
    )
