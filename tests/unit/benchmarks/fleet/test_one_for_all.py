from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.contest import HALVINGS, Grid, tune
from benchmarks.fleet.one_for_all import OneForAll, best_for_all, groups, one_for_all
from simulator.fleet.course import Result

VALUES = tuple(range(1, 11))
GRID = Grid("x", VALUES, {"y": (0, 1)})


def made(day: str, spec: str, attainment: float, hours: float) -> Result:
    return Result(day, spec.partition(":")[0], spec, attainment, hours, 0.0, None)


def dearer(x: float, y: float) -> float:
    """Costs of y=1."""
    return 100.0 - 5 * x + y


class Days:
    """Days on each of which the SLA is kept up to a value of x, by y; hours fall with x.

    Attributes:
        asked: day and spec of each run since ``tuned`` was made.
    """

    def __init__(
        self, *most: Mapping[int, float], hours: Callable[[float, float], float] = dearer
    ) -> None:
        self._hours = hours
        self.asked: list[tuple[str, str]] = []
        self.runs = {f"d{k}": self._run(f"d{k}", one) for k, one in enumerate(most)}
        self.tuned = {day: tune("p", GRID, run) for day, run in self.runs.items()}
        self.asked.clear()

    def _run(self, day: str, most: Mapping[int, float]) -> Callable[[str], Result]:
        def run(spec: str) -> Result:
            self.asked.append((day, spec))
            x, y = (float(part.partition("=")[2]) for part in spec.split(":")[1].split(","))
            return made(day, spec, 1.0 if x <= most[int(y)] else 0.5, self._hours(x, y))

        return run

    def found(self, limit: OneForAll | None = None) -> OneForAll | None:
        return one_for_all("p", GRID, self.runs, self.tuned, limit)


def value(found: OneForAll | None) -> tuple[float, str]:
    """x to half of one, and y."""
    assert found is not None
    x, y = (part.partition("=")[2] for part in found.spec.split(":")[1].split(","))
    return round(2 * float(x)) / 2, y


def test_a_setting_that_was_best_on_no_day_is_tried_as_well() -> None:
    """y=1 is second on both days, and the only one that is not bad on either."""
    grid = Grid("x", VALUES, {"y": (0, 1, 2)})
    most = ({0: 9, 1: 7, 2: 1}, {0: 1, 1: 7, 2: 9})

    def run_on(day: int) -> Callable[[str], Result]:
        def run(spec: str) -> Result:
            x, y = (float(part.partition("=")[2]) for part in spec.split(":")[1].split(","))
            return made(f"d{day}", spec, 1.0 if x <= most[day][int(y)] else 0.5, 100 - 5 * x)

        return run

    runs = {f"d{day}": run_on(day) for day in (0, 1)}
    tuned = {day: tune("p", grid, run) for day, run in runs.items()}
    assert {one.spec[-1] for one in tuned.values()} == {"0", "2"}
    assert value(one_for_all("p", grid, runs, tuned)) == (7.0, "1")


def test_a_value_between_two_of_the_grid_is_tried_with_every_setting() -> None:
    """y=1 is the better one by a value between, and by none of the grid's."""
    days = Days({0: 5, 1: 5.9}, {0: 5, 1: 5.9}, hours=lambda x, y: 100 - 5 * x + 2 * y)
    days.tuned = {d: made(d, "p:x=5,y=0", 1.0, 75.0) for d in days.runs}
    days.tuned = {d: replace(one, replica_hours=70.0) for d, one in days.tuned.items()}
    found = days.found()
    assert found is not None and found.spec.endswith("y=1")
    assert 5.4 < float(found.spec.split("=")[1].split(",")[0]) <= 5.9


def test_a_search_begins_with_what_an_earlier_one_found() -> None:
    days = Days({0: 8, 1: 1}, {0: 2.95, 1: 6})
    found = one_for_all("p", GRID, days.runs, days.tuned, None, "p:x=2.94,y=0")
    assert days.asked[0][1] == "p:x=2.94,y=0"
    assert found is not None and float(found.spec.split("=")[1].split(",")[0]) >= 2.94


def test_what_an_earlier_search_found_is_made_tighter() -> None:
    """y=1 is the cheaper one, and was best on no day."""
    days = Days({0: 5, 1: 8}, {0: 5, 1: 8}, hours=lambda x, y: 100 - 5 * x - 10 * y)
    days.tuned = {d: made(d, "p:x=5,y=0", 1.0, 40.0) for d in days.runs}
    assert value(one_for_all("p", GRID, days.runs, days.tuned, None, "p:x=4,y=1")) == (8.0, "1")


def test_nothing_where_no_setting_is_right_for_both() -> None:
    assert Days({0: 8, 1: 0}, {0: 0, 1: 8}).found() is None


def test_what_cannot_be_cheaper_is_not_tried_further() -> None:
    """x=5, y=0 takes 75 hours. With y=1 the second day needs 6 at most, the first 2.

    Hours are 40 more with y=1, so a day alone says that it is dearer.
    """
    days = Days({0: 8, 1: 9}, {0: 5, 1: 9}, hours=lambda x, y: 100 - 5 * x + 40 * y)
    assert value(days.found()) == (5.0, "0")
    with_one = [(day, spec) for day, spec in days.asked if spec.endswith("y=1")]
    assert len(with_one) <= 5 + HALVINGS  # each value on one day or two; 10 fails, so 9 to 10


def test_another_policys_setting_is_a_limit() -> None:
    days = Days({0: 8, 1: 3}, {0: 5, 1: 2})
    found = days.found()
    assert found is not None
    assert days.found(limit=found) is None
    dear = OneForAll("q:x=1", {day: made(day, "q:x=1", 1.0, 500.0) for day in days.runs})
    assert days.found(limit=dear) == found


@given(
    st.lists(
        st.tuples(st.integers(1, 10), st.integers(1, 10)).map(lambda at: {0: at[0], 1: at[1]}),
        min_size=1,
        max_size=4,
    )
)
def test_it_keeps_the_sla_everywhere_and_no_other_setting_of_the_grid_is_cheaper(
    most: list[Mapping[int, float]],
) -> None:
    found = Days(*most).found()
    cheapest = min(dearer(min(one[y] for one in most), y) for y in (0, 1))
    assert found is not None and all(one.keeps for one in found.by_day.values())
    assert cheapest - 1e-6 <= found.mean_hours <= cheapest + 1e-6


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
    assert found.among == ("ray",)


def test_a_rival_dearer_on_each_day_than_anothers_one_setting_is_not_run() -> None:
    asked: list[str] = []

    def run(spec: str) -> Result:
        asked.append(spec.partition(":")[0])
        return made("day", spec, 1.0, 60.0 if spec.startswith("wva") else 80.0)

    wva = made("day-1", "wva:kv_threshold=0.3,upscale_delay_s=0", 0.995, 50.0)
    by_day = {
        "day-1": results("day-1", 1.0, 1.0, hours=70.0) | {"wva tuned": wva},
        "day-2": results("day-2", 1.0, 1.0, hours=70.0) | {"wva tuned": wva},
    }
    found = best_for_all(by_day, list(by_day), dict.fromkeys(by_day, run))
    assert found is not None and found.spec.startswith("wva")
    assert set(asked) == {"wva"}
    assert sorted(found.among) == ["ray", "wva"]  # left out as dearer, and no less looked at
