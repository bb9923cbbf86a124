"""What is late, and how many prompts are counted on."""

import numpy as np
import pytest

from controller.law.target import LEAST_SERVED, MOST_LOAD, TargetSearch, in_time_s, theta_s
from controller.models.demand import Demand
from controller.models.prompt_work import PromptWork
from controller.models.step_time import StepModel

D = 0.05


@pytest.mark.parametrize(
    ("planned_s", "took_s", "theta"),
    [
        (0.04, 0.10, -0.01),  # a pause of 60 ms comes on top of a shorter step as well
        (0.06, 0.10, 0.03),  # planned beyond D: a step of half the length takes half as long
        (0.04, 0.04, 0.05),
        (0.02, 0.04, 0.025),
    ],
)
def test_a_pause_is_told_from_a_step_that_is_longer_by_its_length(planned_s, took_s, theta):
    assert theta_s(np.array(planned_s), np.array(took_s), D) == pytest.approx(theta)


def search(c0: float) -> tuple[TargetSearch, PromptWork]:
    model, demand = (
        StepModel(c0, 1e-4, 0.0, 1e-4, 0.0, 0.0),
        Demand(np.full(50, 300.0), 3000.0, 0.2),
    )
    return TargetSearch(model, model, demand, 300.0), PromptWork(model, demand, 300.0)


def test_where_d_leaves_little_more_is_counted_on_than_is_carried_inside_it() -> None:
    in_time = in_time_s(np.full(400, 0.04), np.full(400, 0.04), D)
    for c0, is_little in ((0.01, False), (0.0452, True)):
        found, work = search(c0)
        inside_per_s, longest_per_s = work.carried_per_s(D), work.carried_per_s(10 * D)
        served = found.targets(in_time, 0.0, D, 0.0085, known=True).served_per_s
        least = LEAST_SERVED * longest_per_s
        assert (least > inside_per_s) is is_little
        assert served == pytest.approx(MOST_LOAD * max(inside_per_s, least))


def test_where_the_decodes_alone_are_late_no_prompt_waits_for_them() -> None:
    found, _ = search(0.01)
    late = in_time_s(np.full(400, 0.02), np.full(400, 2.0), D)
    strict, free = (found.targets(late, 0.0, D, a, known=True) for a in (0.0085, 1.0))
    assert strict == free
