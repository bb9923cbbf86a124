"""Static limits for the demo: searched, kept by kind of machine, found again."""

from pathlib import Path

import pytest

from serve_app.demo import tuned
from serve_app.demo.model import MODELS, SMALL, TINY
from serve_app.demo.tuned import StaticLimits, candidates, keep, kind_of_machine, search, tuned_for


def test_the_shipped_limits_are_found_for_each_model() -> None:
    for model in MODELS.values():
        found = tuned_for(model).limits
        assert 0 < found.cap < found.token_budget


def test_what_was_found_here_is_kept_for_this_kind_of_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuned.json"
    keep(SMALL, StaticLimits(8, 40), path)
    assert tuned_for(SMALL, path).here
    monkeypatch.setattr(tuned, "kind_of_machine", lambda: "another")
    elsewhere = tuned_for(SMALL, path)
    assert (elsewhere.limits, elsewhere.here) == (StaticLimits(8, 40), False)
    assert elsewhere.machine == kind_of_machine()
    keep(SMALL, StaticLimits(9, 41), path)
    keep(TINY, StaticLimits(1, 2), path)
    assert tuned_for(SMALL, path).limits == StaticLimits(9, 41)
    assert tuned_for(TINY, path).limits == StaticLimits(1, 2)


def test_the_best_of_a_search_is_measured_again() -> None:
    costs = {limits: float(k + 1) for k, limits in enumerate(candidates(SMALL))}
    first, second = candidates(SMALL)[:2]
    asked: list[StaticLimits] = []

    def cost(limits: StaticLimits) -> float:
        asked.append(limits)
        lucky = limits == first and asked.count(first) == 1
        return costs[limits] if lucky or limits != first else 10.0

    assert search(cost, candidates(SMALL)) == second
    assert asked.count(second) == 3
