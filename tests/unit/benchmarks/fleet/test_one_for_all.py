from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.contest import Grid, tune
from benchmarks.fleet.course import Result
from benchmarks.fleet.one_for_all import OneForAll, best_for_all, groups, one_for_all

GRID = Grid("x", tuple(range(1, 11)), {"y": (0, 1)})


def made(day: str, spec: str, attainment: float, hours: float) -> Result:
    return Result(day, spec.partition(":")[0], spec, attainment, hours, 0.0, None)


def a_day(
    day: str, most: Mapping[int, int], asked: list[tuple[str, str]]
) -> Callable[[str], Result]:
    """The SLA is kept up to ``most`` of x, by y; hours fall with x."""

    def run(spec: str) -> Result:
        asked.append((day, spec))
        x, y = (int(part.partition("=")[2]) for part in spec.split(":")[1].split(","))
        return made(day, spec, 1.0 if x <= most[y] else 0.5, 100.0 - 5 * x - y)

    return run


def found_by(*days: Mapping[int, int]) -> tuple[OneForAll | None, list[tuple[str, str]]]:
    asked: list[tuple[str, str]] = []
    runs = {f"d{k}": a_day(f"d{k}", most, asked) for k, most in enumerate(days)}
    tuned = {day: tune("p", GRID, run) for day, run in runs.items()}
    asked.clear()
    return one_for_all("p", GRID, runs, tuned), asked


def test_the_tightest_setting_that_no_day_fails_is_taken() -> None:
    found, _ = found_by({0: 8, 1: 3}, {0: 5, 1: 2}, {0: 9, 1: 4})
    assert found is not None and found.spec == "p:x=5,y=0"
    assert set(found.by_day) == {"d0", "d1", "d2"}
    assert all(one.keeps for one in found.by_day.values())


def test_a_more_generous_value_than_any_days_best_where_two_days_want_other_settings() -> None:
    """With y=0 the second day keeps the SLA up to 2 only, which was not its best."""
    found, _ = found_by({0: 8, 1: 1}, {0: 2, 1: 6})
    assert found is not None and found.spec == "p:x=2,y=0"


def test_nothing_where_no_setting_is_right_for_both() -> None:
    assert found_by({0: 8, 1: 0}, {0: 0, 1: 8})[0] is None


def test_what_cannot_be_cheaper_is_not_tried_further() -> None:
    """x=5, y=0 takes 75 hours; with y=1 the first day keeps the SLA from 2 on, the second needs 6.

    At 3 the first day takes 84, the second at least 69: more than 75 on average already.
    """
    found, asked = found_by({0: 8, 1: 2}, {0: 5, 1: 6})
    assert found is not None and found.spec == "p:x=5,y=0"
    with_one = [(day, spec) for day, spec in asked if spec.endswith("y=1")]
    assert with_one == [("d1", "p:x=6,y=1"), *(("d0", f"p:x={x},y=1") for x in (6, 5, 4, 3))]


@given(
    st.lists(
        st.tuples(st.integers(1, 10), st.integers(1, 10)).map(lambda at: {0: at[0], 1: at[1]}),
        min_size=1,
        max_size=4,
    )
)
def test_it_keeps_the_sla_everywhere_and_no_tried_side_setting_is_cheaper(
    days: list[dict[int, int]],
) -> None:
    found, asked = found_by(*days)
    sides = {spec[-1] for _, spec in asked}
    least = {y: min(most[y] for most in days) for y in (0, 1)}
    cheapest = min(100.0 - 5 * least[int(y)] - int(y) for y in sides)
    assert found is not None
    assert found.mean_hours == pytest.approx(cheapest)


def test_another_policys_hours_over_those_of_the_setting_day_by_day() -> None:
    one = OneForAll("p:x=1", {"a": made("a", "p:x=1", 1.0, 10.0), "b": made("b", "p:x=1", 1.0, 40)})
    assert one.mean_hours == pytest.approx(20.0)
    others = {"a": made("a", "q", 1.0, 10.0), "b": made("b", "q", 1.0, 10.0)}
    assert one.hours_against(others) == pytest.approx(0.5)


def results(day: str, ours: float, rival: float, hours: float = 50.0) -> dict[str, Result]:
    tuned = made(day, "ray:target_ongoing_requests=8,upscale_delay_s=0", rival, hours)
    return {"brimful": made(day, "brimful", ours, 40.0), "ray tuned": tuned}


def test_days_on_which_ours_or_every_rival_fails_are_not_compared() -> None:
    by_day = {
        "day-1": results("day-1", 0.995, 0.995),
        "day-2": results("day-2", 0.995, 0.991),
        "day-3": results("day-3", 0.9, 0.995),
        "step": results("step", 0.995, 0.995),
        "clumps": results("clumps", 0.995, 0.9),
    }
    assert groups(by_day) == {
        "real days": ["day-1", "day-2"],
        "all days": ["day-1", "day-2", "step"],
    }
    del by_day["step"]
    assert groups(by_day) == {"real days": ["day-1", "day-2"]}


def test_a_rival_that_fails_on_a_day_tuned_for_it_is_left_out() -> None:
    by_day = {"day-1": results("day-1", 1.0, 1.0), "day-2": results("day-2", 1.0, 0.5)}
    runs = {day: by_day[day]["ray tuned"] for day in by_day}
    asked = {day: lambda spec, one=one: one for day, one in runs.items()}
    assert best_for_all(by_day, list(by_day), asked) is None
    found = best_for_all(by_day, ["day-1"], asked)
    assert found is not None and found.mean_hours == pytest.approx(50.0)
