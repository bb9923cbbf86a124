"""The arithmetic of every bench: intervals, rows and their targets."""

import pytest

from benchmarks.report.interval import Estimate, geometric_mean, mean
from benchmarks.report.rows import Row, Section, exactly, interval, rows_table


def test_few_seeds_give_their_lowest_and_highest_and_say_so() -> None:
    assert mean([1.0, 6.0, 2.0]) == Estimate(3.0, 1.0, 6.0, "min to max", 3)
    assert mean([1.0, 6.0, 2.0, 2.0, 4.0]).interval == "min to max"


def test_one_run_has_no_interval() -> None:
    assert mean([2.0]) == exactly(2.0) == Estimate(2.0, 2.0, 2.0, "one run", 1)
    assert interval(mean([2.0])) == "one run"
    assert interval(mean([2.0, 4.0])) == "2 to 4 (min to max of 2)"


def test_ratios_are_averaged_geometrically_over_cases_and_seeds() -> None:
    found = geometric_mean([[2.0, 2.0], [0.5, 0.5]])
    assert found.value == pytest.approx(1.0)
    assert found.low == found.high == pytest.approx(1.0)  # seeds are drawn, cases are not


def row(value: float, **targets: float) -> Row:
    return Row("id", "what", "ratio", exactly(value), **targets)


def test_targets_are_met_on_their_own_side() -> None:
    assert row(1.0).met is None
    assert row(1.0, at_least=1.0).met
    assert not row(0.99, at_least=1.0).met
    assert not row(1.3, at_least=0.8, at_most=1.2).met


def test_a_row_as_json() -> None:
    assert row(1.23456789, at_least=1.0).to_json() == {
        "id": "id",
        "value": 1.2346,
        "unit": "ratio",
        "target": 1.0,
        "low": 1.2346,
        "high": 1.2346,
        "interval": "one run",
        "runs": 1,
    }
    assert row(1.0, at_least=0.8, at_most=1.2).to_json()["target"] == [0.8, 1.2]


def test_a_missed_target_is_written_down() -> None:
    assert "**missed**" in rows_table([row(0.5, at_least=1.0)])
    text = Section("G0", "title", "how", (row(2.0),)).markdown("make results")
    assert text.startswith("# G0: title")
    assert "`make results`" in text
