"""What an engine is asked for: lengths of the prompts that started, and rates."""

import pytest

from controller.models.demand import PROMPTS_KEPT, TYPICAL_PROMPT, Demand


def test_prompts_count_as_often_as_they_start() -> None:
    demand = Demand()
    for started in ((64,), (), (1500, 64), ()):
        demand.observe(1, 500, 0.02, started)
    demand.see(waiting=3)
    assert demand.prompts.tolist() == [64, 1500, 64]
    assert demand.prefill_per_s == pytest.approx(500 / 0.02 + 3 * (64 + 1500 + 64) / 3 / 60)
    assert demand.decodes_per_prefill == pytest.approx(1 / 500)


def test_of_the_prompts_that_started_the_last_are_looked_at() -> None:
    demand = Demand()
    demand.observe(1, 500, 0.02, [7] * 300)
    demand.observe(1, 500, 0.02, [9] * 3)
    assert demand.prompts.tolist() == [7] * (PROMPTS_KEPT - 3) + [9] * 3


def test_nothing_is_asked_for_before_a_step_ran() -> None:
    demand = Demand()
    assert (demand.prefill_per_s, demand.decodes_per_prefill) == (0.0, 0.0)
    assert demand.prompts.tolist() == [TYPICAL_PROMPT]
