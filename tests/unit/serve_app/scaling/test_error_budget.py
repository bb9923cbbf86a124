"""How much of the load may be above what is provided for."""

import pytest

from serve_app.scaling.error_budget import DOUBLES_S, FIRST, LEAST, LONGEST_GAP_S, MOST, ErrorBudget
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


def test_where_nobody_says_who_is_late_it_stays():
    allowance = ErrorBudget(AIM)
    for now_s in (0.0, 10.0, 20.0):
        assert allowance.look(now_s, [one(10.0)]) == pytest.approx(FIRST)


def test_after_looks_that_are_missing_it_is_as_it_was():
    allowance = ErrorBudget(AIM)
    allowance.look(0.0, [served(0.0, 0.0)])
    assert allowance.look(1000.0, [served(9000.0, 0.0)]) == pytest.approx(FIRST)
    assert allowance.look(900.0, [served(9900.0, 0.0)]) == pytest.approx(FIRST)


def share_of(aim: float, *looks: tuple[float, ReplicaLoad]) -> float:
    allowance = ErrorBudget(aim)
    return [allowance.look(now_s, [load]) for now_s, load in looks][-1]


def test_of_those_that_are_not_refused_a_share_is_late():
    # Half of them are refused, and half of the rest is late: as many as may be.
    looks = [(10.0 * k, served(100.0 * k, 50.0 * k, refused_per_s=5.0)) for k in range(9)]
    assert share_of(0.75, *looks) == pytest.approx(FIRST)


def test_no_more_than_all_are_late():
    # What is counted as late and as served need not be of one moment.
    looks = (0.0, served(0.0, 0.0)), (10.0, served(10.0, 20.0))
    assert share_of(1.0, *looks) == pytest.approx(FIRST)


def test_a_replica_with_fewer_late_than_before_has_another_engine():
    looks = (0.0, served(1000.0, 900.0)), (10.0, served(1010.0, 5.0))
    assert share_of(AIM, *looks) == pytest.approx(FIRST)


def test_looks_up_to_a_minute_apart_belong_together():
    def after(gap_s: float) -> float:
        return share_of(AIM, (0.0, served(0.0, 0.0)), (gap_s, served(9000.0, 0.0)))

    assert after(60.0) > FIRST == pytest.approx(after(61.0))


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


def test_who_is_refused_weighs_as_much_as_who_is_served():
    allowance = ErrorBudget(AIM)
    for k, count in enumerate([0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 505.0]):
        refused_per_s = 9.5 if k == 6 else 0.0  # 95 of 600 in all
        allowance.look(10.0 * k, [served(count, 0.0, refused_per_s=refused_per_s)])
    assert allowance.many_late


def test_after_a_minute_in_time_none_is_late_lately():
    allowance = lately(50.0)
    for k in range(1, 6):
        allowance.look(60.0 + 10.0 * k, [served(600.0 + 100.0 * k, 300.0)])
    assert not allowance.many_late
    allowance = lately(50.0)
    allowance.look(120.0, [served(700.0, 300.0)])
    assert not allowance.many_late


def test_two_looks_of_one_moment_leave_what_is_known():
    allowance = lately(50.0)
    allowance.look(60.0, [served(600.0, 300.0)])
    assert allowance.many_late


@pytest.mark.parametrize("now_s", [121.0, 5.0])  # after a long gap, and by a clock that went back
@pytest.mark.parametrize("late", [300.0, 9000.0])
def test_after_looks_that_are_missing_nobody_is_known_to_be_late(now_s, late):
    allowance = lately(50.0)
    allowance.look(now_s, [served(600.0 + late, late)])
    assert not allowance.many_late


@pytest.mark.parametrize("pushed_s", [1, 2, 5, 30])
def test_how_fast_it_learns_is_a_matter_of_time_and_not_of_how_often_it_is_told(pushed_s):
    allowance, share = ErrorBudget(AIM), FIRST
    for now_s in range(int(DOUBLES_S) + 1):
        share = allowance.look(float(now_s), [served(float(now_s // pushed_s * pushed_s), 0.0)])
    assert share == pytest.approx(2 * FIRST)


@pytest.mark.parametrize(("arrivals", "counted_s"), [(0.0, 1.0), (10.0, LONGEST_GAP_S)])
def test_a_time_in_which_nobody_came_teaches_nothing_and_without_answers_a_gap(arrivals, counted_s):
    allowance = ErrorBudget(AIM)
    for now_s in range(10_000):
        allowance.look(float(now_s), [served(0.0, 0.0, arrivals=arrivals)])
    share = allowance.look(10_000.0, [served(5.0, 0.0)])
    assert share == pytest.approx(FIRST * 2 ** (counted_s / DOUBLES_S))


def test_each_request_of_bursts_weighs_alike():
    # 20 s of requests in every 90, the first of them in time, as a queue has yet to build.
    allowance, share = ErrorBudget(AIM), FIRST
    come = late = 0.0
    for now_s in range(3600):
        second = now_s % 90
        if second < 20:
            come += 2
            late += 0.1 if second >= 6 else 0.0  # 3.5% of all
        arrivals = 2.0 if second < 30 else 0.0
        if now_s % 2 == 0:
            load = served(come, late, arrivals=arrivals)
        share = allowance.look(float(now_s), [load])
    assert share < FIRST
