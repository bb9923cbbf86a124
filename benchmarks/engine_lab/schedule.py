"""Which tasks a condition takes, one made from the results of the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.engine_lab.tasks import (
    BesideTask,
    EngineTask,
    Ground,
    Limits,
    RankTask,
    RateTask,
    RecordTask,
    Task,
)

Side = Literal["off", "tuned", "on"]  # vLLM's default, its best static limits, `adaptive`
BySide = dict[Side, list[dict[str, Any]]]
Do = Callable[[Task], Any]
"""Makes a task, or finds that it was made: its result."""

SIDES: tuple[Side, ...] = ("off", "tuned", "on")
VLLMS, OURS = Limits(), Limits(64, 2048)
TUNING_SEED, FIRST_SEED = 100, 1  # limits are not chosen on the requests that they are judged by

START_S = 25.0  # until an engine serves: imports, weights, warm-up
DRAIN_FRAC = 0.1  # of the seconds of arrivals
RATE_S, RANK_S, BESIDE_S = 300.0, 240.0, 45.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Args:
        shares: of the rate inside the SLA; a row each.
        tried: static limits that the replay ranks first and the engine runs, once a row.
    """

    rounds: int = 3
    shares: tuple[float, ...] = (0.5, 0.8)
    tried: int = 3


@dataclass(frozen=True, slots=True)
class Row:
    """What one condition came to at one rate.

    Args:
        share: of the rate inside the SLA.
        tuned: the limits of that side.
        runs: what the engine came to, of each side a round each.
        beside: the figures of the same in the replay; empty where steps were not kept.
    """

    condition: str
    share: float
    rate_per_s: float
    tuned: Limits
    runs: BySide
    beside: BySide


def rows_of(condition: str, ground: Ground, plan: Plan, do: Do) -> list[Row]:
    """All rows of a condition, measured."""
    most_per_s = do(RateTask(ground))["rate_per_s"]
    return [
        _row(condition, ground, share, round(share * most_per_s, 3), plan, do)
        for share in plan.shares
    ]


def _row(
    condition: str, ground: Ground, share: float, rate_per_s: float, plan: Plan, do: Do
) -> Row:
    tuned = _tuned(ground, rate_per_s, plan.tried, do)
    tasks = run_tasks(ground, rate_per_s, tuned, plan.rounds)
    runs = _by_side(tasks, [do(task) for _, task in tasks])
    figures = do(BesideTask(tuple(task for _, task in tasks)))
    beside = {} if figures is None else _by_side(tasks, figures)
    return Row(condition, share, rate_per_s, tuned, runs, beside)


def run_tasks(
    ground: Ground, rate_per_s: float, tuned: Limits, rounds: int
) -> list[tuple[Side, EngineTask]]:
    """The runs of a row in the order in which they are made: the three sides in turn."""
    limits: dict[Side, Limits] = {"off": VLLMS, "tuned": tuned, "on": OURS}
    return [
        (side, EngineTask(ground, rate_per_s, FIRST_SEED + number, side == "on", limits[side]))
        for number in range(rounds)
        for side in in_turn(number)
    ]


def _by_side(tasks: Sequence[tuple[Side, EngineTask]], found: Sequence[Any]) -> BySide:
    both = list(zip(tasks, found, strict=True))
    return {side: [one for (of, _), one in both if of == side] for side in SIDES}


def in_turn(number: int) -> tuple[Side, ...]:
    """The order of a round: the next begins with the next side."""
    first = number % len(SIDES)
    return SIDES[first:] + SIDES[:first]


def _tuned(ground: Ground, rate_per_s: float, tried: int, do: Do) -> Limits:
    """The best static limits on this very engine, of those that the replay ranks first."""
    ranked = [Limits(**one["limits"]) for one in do(RankTask(ground, rate_per_s))]
    j = {
        limits: do(EngineTask(ground, rate_per_s, TUNING_SEED, False, limits))["figures"]["j"]
        for limits in (VLLMS, *ranked[:tried])
    }
    return min(j, key=lambda limits: j[limits])


def expected_s(task: Task) -> float:
    """How long a task takes, about."""
    match task:
        case EngineTask() | RecordTask():
            return START_S + (1 + DRAIN_FRAC) * task.ground.seconds
        case RateTask():  # on steps that are recorded first
            return expected_s(RecordTask(task.ground)) + RATE_S
        case RankTask():
            return RANK_S
        case BesideTask():
            return BESIDE_S


def planned_s(ground: Ground, plan: Plan) -> float:
    """How long a condition takes, about."""
    total_s = 0.0

    def do(task: Task) -> Any:
        nonlocal total_s
        total_s += expected_s(task)
        match task:
            case RateTask():
                return {"rate_per_s": 1.0}
            case RankTask():
                return [{"limits": {"cap": cap, "token_budget": cap}} for cap in range(plan.tried)]
            case EngineTask():
                return {"figures": {"j": 1.0}}
        return None

    rows_of("", ground, plan, do)
    return total_s
