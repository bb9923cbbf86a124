"""How much of the load may be above what is provided for."""

import pytest

from serve_app.scaling.error_budget import DOUBLES_S, FIRST, LEAST, MOST, ErrorBudget
from serve_app.scaling.reading import ReplicaLoad
from tests.unit.serve_app.scaling.loads import one

AIM = 0.01


def served(first_tokens: float, late: float, name: str = "a", **more: float) -> ReplicaLoad:
    numbers = {"arrivals": 10.0, **more}
    return one(
        numbers.pop("arrivals"),
        name=name,
        first_tokens=first_tokens,
        late_first_tokens=late,
        **numbers,
    )


def after(late_frac: float, seconds: float, **more: float) -> float:
    allowance, share = ErrorBudget(AIM), FIRST
    for k in range(int(seconds / 10) + 1):
        share = allowance.look(10.0 * k, [served(1000.0 * k, 1000.0 * k * late_frac, **more)])
    return share


@pytest.mark.parametrize(
    ("late_frac", "seconds", "more", "share"),
    [
        (0.0, DOUBLES_S, {}, 2 * FIRST),
        (AIM, DOUBLES_S, {}, FIRST),
        (2 * AIM, DOUBLES_S, {}, FIRST / 2),
        (0.0, 10 * DOUBLES_S, {}, MOST),
        (1.0, DOUBLES_S, {}, LEAST),
        (0.0, DOUBLES_S, {"refused_per_s": 10.0 * AIM}, FIRST),  # who is refused is late
    ],
)
def test_it_doubles_while_none_is_late_stands_still_at_the_aim_and_keeps_within_its_bounds(
    late_frac, seconds, more, share
):
    assert after(late_frac, seconds, **more) == pytest.approx(share)


def test_of_a_replica_only_what_was_served_since_the_last_look_counts():
    allowance = ErrorBudget(AIM)
    allowance.look(0.0, [served(1000.0, 900.0)])
    grown = allowance.look(10.0, [served(1010.0, 900.0), served(500.0, 500.0, "new")])
    assert grown > FIRST
    # The engine of one is another: it counts from 0 again.
    assert allowance.look(20.0, [served(5.0, 5.0), served(600.0, 500.0, "new")]) > grown


def lately(late: float, of: float = 100.0, seconds: float = 60.0, **more: float) -> ErrorBudget:
    """So many of so many requests every ten seconds were late."""
    allowance = ErrorBudget(AIM)
    for k in range(int(seconds / 10) + 1):
        allowance.look(10.0 * k, [served(of * k, late * k, **more)])
    return allowance


@pytest.mark.parametrize(
    ("late", "of", "seconds", "refused_per_s", "many"),
    [
        # More than a tenth.
        (11.0, 100.0, 60.0, 0.0, True),
        (10.0, 100.0, 60.0, 0.0, False),
        # A few are not many: 4.8 of 6 in a minute, a handful.
        (0.8, 1.0, 60.0, 0.0, False),
        (1.0, 1.0, 50.0, 0.0, False),
        # Only what is a minute ago is forgotten.
        *[(0.9, 1.0, seconds, 0.0, True) for seconds in (60.0, 70.0, 80.0, 130.0)],
        # Who is refused is among the many.
        (0.0, 100.0, 60.0, 1.1, True),
        (0.0, 100.0, 60.0, 0.9, False),
    ],
)
def test_many_are_late_where_more_than_a_tenth_and_a_handful_is(
    late, of, seconds, refused_per_s, many
):
    assert lately(late, of, seconds, refused_per_s=refused_per_s).many_late is many


@pytest.mark.parametrize("pushed_s", [1, 2, 5, 30])
def test_how_fast_it_learns_is_a_matter_of_time_and_not_of_how_often_it_is_told(pushed_s):
    allowance, share = ErrorBudget(AIM), FIRST
    for now_s in range(int(DOUBLES_S) + 1):
        share = allowance.look(float(now_s), [served(float(now_s // pushed_s * pushed_s), 0.0)])
    assert share == pytest.approx(2 * FIRST)


@pytest.mark.parametrize("now_s", [121.0, 5.0])  # after a long gap, and by a clock that went back
@pytest.mark.parametrize("late", [300.0, 9000.0])
def test_after_looks_that_are_missing_nobody_is_known_to_be_late(now_s, late):
    allowance = lately(50.0)
    allowance.look(now_s, [served(600.0 + late, late)])
    assert not allowance.many_late
