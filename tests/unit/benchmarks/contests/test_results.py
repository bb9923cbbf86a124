"""``make results``: searches, and the arithmetic of its figures."""

import pytest

from benchmarks.contests.__main__ import rows_of
from benchmarks.contests.catalog import OFFLINE, scenarios
from benchmarks.contests.climb import climb
from benchmarks.contests.race import highest
from benchmarks.contests.settings import Settings
from benchmarks.contests.sweeps import Point, around, point_of


@pytest.mark.parametrize("near", [0.02, 1.0, 3.1, 40.0])
@pytest.mark.parametrize("capacity", [0.5, 3.0, 11.0])
def test_the_highest_rate_is_found_from_any_guess(near: float, capacity: float) -> None:
    found = highest(lambda rate: rate <= capacity, near, 0.01, 50.0)
    assert capacity / 1.03 <= found <= capacity


def test_nothing_holds_and_everything_does() -> None:
    assert highest(lambda rate: False, 1.0, 0.01, 50.0) == 0.0
    assert highest(lambda rate: True, 1.0, 0.01, 50.0) == 50.0


def test_a_search_climbs_to_the_best_cap_and_budget() -> None:
    best = {"value": 0.0}

    def better(point: Point) -> bool:
        values = dict(point.values)
        value = 1 / (
            1 + abs(values["max_num_seqs"] - 57) + abs(values["max_num_batched_tokens"] - 140)
        )
        if found := value > best["value"]:
            best["value"] = value
        return found

    start = Point("static", (("max_num_seqs", 20), ("max_num_batched_tokens", 300)))
    found = dict(climb(around, better, (start,), (0.12, 0.04)).values)
    assert found["max_num_seqs"] == pytest.approx(57, abs=3)
    assert found["max_num_batched_tokens"] == pytest.approx(140, abs=6)


def test_a_kept_setting_is_read_as_it_was_told() -> None:
    every = {part: {one.name: one for one in of} for part, of in scenarios().items()}
    for part, of in every.items():
        for name, one in of.items():
            for rival, spec in Settings().of(part, name).items():
                assert rival in one.rivals
                assert point_of(rival, spec).spec == spec


def test_ratios_are_over_the_best_tuned_rival_of_each_draw() -> None:
    one = OFFLINE[0]
    best = {one.name: {"static": "static:max_num_seqs=64", "sarathi": "sarathi"}}
    values = {
        (one.name, "adaptive"): [12.0, 12.0],
        (one.name, "static"): [6.0, 6.0],
        (one.name, "paper:memory=live"): [8.0, 8.0],
        (one.name, "static:max_num_seqs=64"): [10.0, 12.0],
        (one.name, "sarathi"): [12.0, 10.0],
    }
    rows = {row.id: row for row in rows_of([one], values, best, {})}
    assert rows["offline_best"].estimate.value == 1.0
    assert rows["offline_best"].at_least == 0.995
    assert rows["offline_static"].estimate.value == pytest.approx(1.2**0.5)
    assert rows["offline_as_is_static"].estimate.value == 2.0
    assert rows[f"offline_best_{one.name}"].met
