"""What the lab asks the replay: a rate inside the SLA, static limits in order, runs once more."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine_lab.figures import Figures, figures_of
from benchmarks.engine_lab.load import requests_of
from benchmarks.engine_lab.search import candidates, highest_rate
from benchmarks.engine_lab.tasks import (
    MOST_TTFT_S,
    BesideTask,
    EngineTask,
    Ground,
    Limits,
    RankTask,
    RateTask,
)
from benchmarks.live.served import Served
from controller.config import Sla
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import replay
from simulator.virtual.ground import Ground as Machine
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace

SEED = 0  # of the searches; runs have others


def run(task: RateTask | RankTask | BesideTask, profile: Path) -> Any:
    """What the task asks for, as JSON has it.

    Args:
        profile: a file with the steps to replay on.
    """
    steps = load_profile(str(profile))
    match task:
        case RateTask():
            return highest_rate(candidates(), lambda *at: holds(task.ground, steps, *at))
        case RankTask():
            # Of limits with the same J, which did the same, the last has the largest cap.
            by_j = {
                _search(task.ground, steps, limits, task.rate_per_s).j: limits
                for limits in candidates()
            }
            return [{"limits": asdict(limits), "j": j} for j, limits in sorted(by_j.items())]
        case BesideTask():
            return [asdict(_figures(one, steps, seed=one.seed)) for one in task.runs]


def holds(ground: Ground, steps: StepProfile, limits: Limits, rate_per_s: float) -> bool:
    """Whether these limits hold the SLA and ``MOST_TTFT_S`` at this rate."""
    found = _search(ground, steps, limits, rate_per_s)
    return found.late_frac <= 1 - ground.percentile / 100 and found.ttft_s[0] <= MOST_TTFT_S


def _search(ground: Ground, steps: StepProfile, limits: Limits, rate_per_s: float) -> Figures:
    task = EngineTask(ground, rate_per_s, SEED, False, limits)
    return _figures(task, steps, ground.search_s, SEED)


def _figures(
    task: EngineTask, steps: StepProfile, seconds: float | None = None, seed: int = SEED
) -> Figures:
    """The figures of a run, had it been on this profile.

    Args:
        seconds: of arrivals; None: the task's.
        seed: of what the profile draws.
    """
    ground, limits = task.ground, task.limits
    seconds = ground.seconds if seconds is None else seconds
    options = {"max_num_seqs": limits.cap, "max_num_batched_tokens": limits.token_budget}
    given = ",".join(f"{key}={value}" for key, value in options.items() if value is not None)
    policy = "adaptive" if task.adaptive else "static"
    sla = Sla(itl_ms=ground.sla_ms, percentile=ground.percentile)
    plan = parse_policy(f"{policy}:{given}", sla, engine_of(steps))
    requests = requests_of(task.rate_per_s, seconds, task.seed)
    trace = replay(requests, plan, Machine(steps, disturbance_seed=seed))
    return figures_of(
        served_of(trace), ground.sla_ms / 1000, ground.percentile, ground.skip_s, seconds
    )


def served_of(trace: Trace) -> Served:
    """What clients saw of a replay that was not ended early."""

    def column(name: str) -> list[float]:
        times = (getattr(outcome, name) for outcome in trace.outcomes)
        return [np.nan if at_s is None else at_s for at_s in times]

    gaps = trace.gaps
    return Served(
        np.array([outcome.request.arrival_s for outcome in trace.outcomes]),
        np.array(column("first_token_s")),
        np.array(column("finished_s")),
        np.array([outcome.tokens for outcome in trace.outcomes]),
        gaps.length_s,
        gaps.end_s,
        gaps.request,
        trace.end_s,
    )
