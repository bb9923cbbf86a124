"""The highest rate that any static limits hold, with few questions."""

import pytest

from benchmarks.engine_lab.search import PRECISION, candidates, highest_rate
from benchmarks.engine_lab.tasks import Limits
from controller.errors import BrimfulError


def test_vllm_starts_with_each_of_them() -> None:
    for one in candidates():
        assert one.cap and one.token_budget and one.token_budget >= one.cap
    assert len(set(candidates())) == len(candidates())


@pytest.mark.parametrize("best", [0, 7, 31])
def test_the_best_is_found_to_a_percent(best: int) -> None:
    limits, asked = candidates(), []

    def holds(one: Limits, rate_per_s: float) -> bool:
        asked.append(one)
        return rate_per_s <= (0.83 if one == limits[best] else 0.4)

    found = highest_rate(limits, holds)
    assert Limits(**found["limits"]) == limits[best]
    assert 0.83 / PRECISION <= found["rate_per_s"] <= 0.83
    assert len(asked) < len(limits) + 60  # whoever is no better is asked once


def test_a_machine_that_holds_no_rate_is_told() -> None:
    with pytest.raises(BrimfulError, match="too slow or too busy"):
        highest_rate(candidates(), lambda limits, rate_per_s: False)
