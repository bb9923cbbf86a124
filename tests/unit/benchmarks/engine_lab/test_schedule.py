"""What is measured in which order, and what limits the tuned side gets."""

from typing import Any

from benchmarks.engine_lab.schedule import (
    OURS,
    SIDES,
    TUNING_SEED,
    VLLMS,
    Plan,
    expected_s,
    planned_s,
    rows_of,
)
from benchmarks.engine_lab.tasks import (
    BesideTask,
    EngineTask,
    Ground,
    Limits,
    RankTask,
    RateTask,
    Task,
)

GROUND = Ground("tiny", None, 130.0, 120.0, 30.0)
RANKED = [Limits(8, 16), Limits(16, 32), Limits(24, 40), Limits(32, 48)]
J = {VLLMS: 4.0, RANKED[0]: 3.0, RANKED[1]: 1.0, RANKED[2]: 2.0, OURS: 0.5}


class Lab:
    """Answers tasks from a table, and keeps their order."""

    def __init__(self, *, steps: bool = True) -> None:
        self.asked: list[Task] = []
        self._steps = steps

    def do(self, task: Task) -> Any:
        self.asked.append(task)
        match task:
            case RateTask():
                return {"rate_per_s": 0.6}
            case RankTask():
                return [{"limits": {"cap": o.cap, "token_budget": o.token_budget}} for o in RANKED]
            case EngineTask():
                return {"figures": {"j": J[task.limits]}, "seed": task.seed}
            case BesideTask():
                return [{"seed": run.seed} for run in task.runs] if self._steps else None
        return None


def test_rows_are_shares_of_the_rate_inside_the_sla() -> None:
    rows = rows_of("alone", GROUND, Plan(), Lab().do)
    assert [(row.share, row.rate_per_s) for row in rows] == [(0.5, 0.3), (0.8, 0.48)]


def test_the_tuned_side_is_what_does_best_on_the_engine_and_not_in_the_replay() -> None:
    lab = Lab()
    (row, _) = rows_of("alone", GROUND, Plan(), lab.do)
    assert row.tuned == RANKED[1]
    tried = [t for t in lab.asked if isinstance(t, EngineTask) and t.seed == TUNING_SEED]
    assert [one.limits for one in tried[:4]] == [VLLMS, *RANKED[:3]]


def test_rounds_have_requests_of_their_own_and_another_side_begins_each() -> None:
    lab = Lab()
    (row,) = rows_of("alone", GROUND, Plan(shares=(0.5,)), lab.do)
    runs = [t for t in lab.asked if isinstance(t, EngineTask) and t.seed != TUNING_SEED]
    assert [one.seed for one in runs] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    side = {VLLMS: "off", row.tuned: "tuned", OURS: "on"}
    order = [side[one.limits] for one in runs]
    assert order == ["off", "tuned", "on", "tuned", "on", "off", "on", "off", "tuned"]
    assert all(one.adaptive == (one.limits == OURS) for one in runs)
    assert {name: [run["seed"] for run in row.runs[name]] for name in SIDES} == {
        name: [1, 2, 3] for name in SIDES
    }
    assert {name: [one["seed"] for one in row.beside[name]] for name in SIDES} == {
        name: [1, 2, 3] for name in SIDES
    }


def test_a_row_whose_steps_were_not_kept_has_no_replay_beside_it() -> None:
    (row,) = rows_of("alone", GROUND, Plan(shares=(0.5,)), Lab(steps=False).do)
    assert row.beside == {}


def test_what_is_planned_is_the_sum_of_what_is_asked() -> None:
    lab, plan = Lab(), Plan()
    rows_of("alone", GROUND, plan, lab.do)
    assert planned_s(GROUND, plan) == sum(map(expected_s, lab.asked))
