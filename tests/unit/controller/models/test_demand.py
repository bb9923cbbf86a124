"""What an engine is asked for: of prompts in the prefix cache, what is left to compute."""

import numpy as np
import pytest

from controller.models.demand import Demand


def seen(started: int, computed: int) -> Demand:
    """Prompts of 1,000 tokens, of which so many are computed, in steps of 20 ms."""
    demand = Demand()
    for _ in range(started):
        demand.observe(1, computed, 0.02, started=1)
    demand.see(np.array([1000, 1000]), waiting=3)
    return demand


@pytest.mark.parametrize(
    ("started", "computed", "tokens"),
    [
        (20, 1000, 1000.0),
        (20, 50, 50.0),  # the prefix cache has the others
        (20, 2000, 1000.0),  # one that was preempted is computed twice
        (4, 50, 1000.0),  # too few to tell
    ],
)
def test_prompts_count_with_what_is_computed_of_them(
    started: int, computed: int, tokens: float
) -> None:
    demand = seen(started, computed)
    assert demand.prompts.tolist() == pytest.approx([tokens, tokens])
    assert demand.prefill_per_s == pytest.approx(computed / 0.02 + 3 * tokens / 60)
    assert demand.decodes_per_prefill == pytest.approx(1 / computed)


def test_nothing_is_asked_for_before_a_step_ran() -> None:
    assert (Demand().prefill_per_s, Demand().decodes_per_prefill) == (0.0, 0.0)
