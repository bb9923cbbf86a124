"""What made tokens late: the chunk, or what would have made them late without it."""

import pytest

from controller.models.demand import Demand
from controller.models.step_target import StepTarget
from tests.unit.controller.models.test_step_target import clean


@pytest.mark.parametrize(
    ("predicted_s", "decodes_s", "took_s", "by_itself"),
    [
        (0.030, 0.024, 0.060, True),  # a pause of 30 ms: 24 ms of decodes would be late with it
        (0.030, 0.024, 0.055, False),
        (0.150, 0.030, 0.200, False),  # a third longer, and so would 30 ms have been
        (0.150, 0.030, 0.300, True),
        (0.030, 0.030, 0.049, False),  # in time
    ],
)
def test_what_prompts_did_not_cause_is_told_as_lateness_is(
    predicted_s: float, decodes_s: float, took_s: float, by_itself: bool
) -> None:
    target = StepTarget(0.05, 99.0, Demand())
    target.observe(10, predicted_s, decodes_s, took_s, prompts=True)
    assert (target.not_caused > 0) == by_itself


def test_under_overload_a_batch_that_grew_is_no_excuse() -> None:
    for prefill, excused in ((1000.0, True), (1e6, False)):
        target = clean(prefill)
        before = target.not_caused
        target.observe(1000, 0.05, 0.048, 0.053, prompts=True)
        assert (target.not_caused > before) == excused


def test_late_tokens_fade_with_the_time_that_steps_take() -> None:
    target = clean(1000.0)
    target.observe(1000, 0.03, 0.024, 0.3, prompts=False)
    late = target.not_caused
    for _ in range(2000):  # a minute
        target.observe(20, 0.03, 0.024, 0.03, prompts=False)
    assert target.not_caused < 0.2 * late
