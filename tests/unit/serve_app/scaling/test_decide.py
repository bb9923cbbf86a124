"""From one look at a fleet to a number of replicas."""

from dataclasses import replace
from typing import Any

import pytest

from serve_app.scaling.decide import Scaler
from serve_app.scaling.reading import ReplicaLoad
from serve_app.scaling.reasons import Decision
from tests.unit.serve_app.scaling.loads import (
    LOAD,
    OUT,
    UNMODELLED,
    desired,
    looks,
    numbers,
    one,
    reading,
    scaler,
)

IDLE = replace(LOAD, running=0.0)
QUEUED = {"waiting": 60.0, "running": 40.0, "max_running": 50.0}


def unmodelled(**numbers: float) -> ReplicaLoad:
    return replace(UNMODELLED, **numbers)


@pytest.mark.parametrize(
    ("replicas", "more", "number"),
    [
        *[([one(arrivals)], {}, n) for arrivals, n in ((6.8, 1), (7.5, 2), (13.8, 2), (14.2, 3))],
        ([one(1e12)], {}, 50),  # the bound
        # Demand is counted in requests of the size that capacity is.
        ([replace(one(6.0), demand_per_s=12.0)], {}, 2),
        # Capacities are averaged, and a new replica without a model hides no other.
        ([one(10.0, capacity_per_s=4.0), one(10.0, capacity_per_s=12.0)], {}, 3),
        ([one(10.0), unmodelled(running=0.0)], {}, 2),
        # Where no capacity is known the queue alone decides: by the mean cap.
        ([unmodelled(running=10.0)], {}, 1),
        ([unmodelled(waiting=60.0)], {}, 2),  # 124 / 64
        ([unmodelled(waiting=30.0)], {"queued": 30.0}, 2),
        ([unmodelled(**QUEUED), unmodelled(waiting=60.0, running=70.0, max_running=78.0)], {}, 4),
        # A cap at which no request waits asks for no more, one below what runs counts as that.
        ([unmodelled(running=40.0, max_running=1.0)], {}, 1),
        ([UNMODELLED], {}, 1),
        ([UNMODELLED], {"target": 2}, 2),
        ([unmodelled(waiting=5.0, running=40.0, max_running=1.0)], {}, 2),  # 45 at 40 each
        # More run than the new cap: they drain, and the cap holds no request back.
        ([unmodelled(running=300.0)], {}, 1),
        # 19/s at 6.8 each are three, and the replica out of reach is in addition.
        ([replace(OUT, demand_per_s=9.0), one(10.0)], {}, 4),
        # A first replica is asked for by what waits outside.
        ([], {"target": 0, "minimum": 0, "queued": 3.0}, 1),
        ([], {"target": 0, "minimum": 0}, 0),
        ([], {"target": 1, "minimum": 0}, 1),
        # Silent ones are taken to be as busy when fewer would do.
        ([one(3.0)] * 2, {"current": 4, "target": 4}, 4),
    ],
)  # fmt: skip
def test_how_many_one_look_asks_for(replicas, more, number):
    assert desired(*replicas, **more) == number


@pytest.mark.parametrize(
    ("fleet", "start_s", "number"),
    [
        # What waits outside counts as far as it waits when a replica has started.
        (reading(one(2.0), queued=400.0), 60.0, 1),  # 40 are left, as 6/s are free: 0.30 + 0.08
        (reading(one(2.0), queued=400.0), 20.0, 3),  # 0.30 + 280 / 20 / 8
        (reading(one(2.0), queued=400.0), 2.0, 3),  # 0.30 + 388 / 20 / 8
        # It need not be gone before a replica has started, else within 20 s.
        (reading(one(2.0), queued=700.0), 60.0, 2),  # 340 are left: (2 + 340 / 60) / 6.8
        (reading(one(2.0), queued=700.0), 10.0, 5),  # 640: (2 + 640 / 20) / 6.8
        # What waits in an engine and will be gone asks for none.
        (reading(one(6.0, waiting=60.0)), 15.0, 2),  # 30 left: 0.87 + 0.19
        (reading(one(6.0, waiting=60.0)), 2.0, 2),  # 56 left: 0.87 + 0.35
        (reading(one(6.0, waiting=60.0)), 30.0, 1),  # none left
    ],
)
def test_what_waits_counts_as_far_as_it_waits_when_a_replica_has_started(fleet, start_s, number):
    assert scaler(start_s).decide(fleet).desired == number


@pytest.mark.parametrize(
    ("waiting", "more"),
    [((0.0, 0.0), 0), ((0.0, 120.0), 1), ((0.0, 9000.0), 1), ((900.0, 900.0), 2)],
)
def test_what_waits_in_an_engine_is_worth_a_replica_at_most(waiting, more):
    # 160 is what a replica carries in 20 s; nothing is free to work it off.
    assert desired(*[one(6.8, waiting=each) for each in waiting]) - len(waiting) == more


def test_what_does_not_shrink_in_spite_of_its_capacity_asks_for_more():
    # 100 wait on, though 5/s seem to be free: they would be gone in 20 s.
    found = looks(scaler(start_s=30.0), [reading(one(3.0, waiting=100.0))] * 6)
    assert numbers(found) == [1, 1, 1, 2, 2, 2]  # 0.44 + 100 / 160


def test_load_above_what_runs_is_asked_for_with_what_will_wait_once_it_lasted():
    # 17/s at one of 8/s: 9/s more wait with every second of the start, behind which it is then.
    scale = scaler(start_s=100.0)
    looks_ = [(7.5, 0.0, 1), (17.0, 10.0, 2), (17.0, 29.0, 3), (17.0, 41.0, 3)]
    found = [scale.decide(reading(one(a), now_s=at_s, target=n)).desired for a, at_s, n in looks_]
    assert found == [2, 3, 3, 4]  # 17 / 8 and the margin, and then what piles up


def test_who_is_refused_asks_for_replicas_and_will_not_wait():
    refused = reading(one(16.0, refused_per_s=10.0))
    assert numbers(looks(scaler(start_s=100.0), [refused] * 3, 20.0)) == [3] * 3


def held(scale: Scaler, arrivals: float, number: int, since_s: int, until_s: int) -> Decision:
    """``arrivals`` for each of ``number`` replicas from ``since_s`` on, every 10 s."""
    fleet = reading(*[one(arrivals)] * number)
    return looks(scale, [fleet] * ((until_s - since_s) // 10 + 1), from_s=since_s)[-1]


def test_fewer_are_asked_for_where_they_carry_the_peak_of_the_recent_past():
    scale = scaler(peak_s=300.0)
    assert held(scale, 6.8, 4, 0, 300).desired == 4
    # What three starts (30 s) had use for is kept, and what was asked for in the last 30 s.
    assert held(scale, 3.0, 4, 310, 360).desired == 4
    falls = held(scale, 3.0, 4, 370, 370)
    assert (falls.desired, falls.reason) == (2, "capacity")


@pytest.mark.parametrize(("peak_s", "start_s"), [(300.0, 10.0), (30.0, 100.0)])
def test_nothing_is_given_up_before_the_past_is_known_or_three_starts(peak_s, start_s):
    scale = scaler(peak_s=peak_s, start_s=start_s)
    assert held(scale, 3.0, 4, 0, 290).desired == 4
    assert held(scale, 3.0, 4, 300, 300).desired == 2


def test_a_load_at_the_edge_of_a_replica_does_not_flap():
    scale, found, running = scaler(peak_s=60.0), [], 2
    for now_s in range(0, 1200, 10):
        arrivals = 15.8 if now_s // 150 % 2 else 16.2  # 1.97 and 2.03 replicas
        fleet = reading(*[one(arrivals / running)] * running, now_s=float(now_s))
        running = scale.decide(fleet).desired
        found.append(running)
    assert set(found) == {3}


@pytest.mark.parametrize(("error_frac", "left"), [(0.0, 2), (0.3, 3)])  # 1.76 and 2.29
def test_a_capacity_that_is_not_sure_gives_up_fewer(error_frac, left):
    fleet = reading(*[one(3.0, capacity_error_frac=error_frac)] * 4)
    assert looks(scaler(peak_s=30.0), [fleet] * 2, 40.0)[-1].desired == left


@pytest.mark.parametrize(("said", "left"), [(2, 0), (1, 1)])
def test_a_replica_that_says_nothing_keeps_an_idle_fleet_above_zero(said, left):
    # With HAProxy Ray Serve counts what replicas say they serve, so this one may be at work.
    fleet = reading(*[IDLE] * said, current=2, target=2, minimum=0, ongoing=0.0)
    assert looks(scaler(), [fleet] * 31)[-1].desired == left


def test_out_of_reach_and_without_requests_a_fleet_shrinks_once_the_past_is_known():
    empty = replace(OUT, running=0.0, arrivals_per_s=0.0)
    fleets = [reading(OUT, OUT), *[reading(empty, empty, minimum=0)] * 7]
    first, *rest = looks(scaler(peak_s=60.0), fleets)
    assert first.reason == "out_of_reach"
    assert numbers(rest) == [2] * 6 + [0]


@pytest.mark.parametrize(("late", "wanted"), [(0.05, 6), (0.2, 9)])
def test_more_are_asked_for_where_many_are_late_at_a_load_that_is_uneven(late, wanted):
    """An hour of a little noise, then 80 requests/s instead of 40 in one look of six."""
    found = uneven(
        [80.0 if k % 6 == 0 else 32.0 for k in range(10)], lambda k: 400.0 * late * max(k - 360, 0)
    )
    assert found[359] == 6 and found[-1] == wanted


def uneven(then: list[float], late: Any) -> list[int]:
    """The numbers over an hour of 40 requests/s with a little noise, and these after it."""
    loads = [40.0 + 6.0 * ((k * 7919) % 11 - 5) / 5 for k in range(360)] + then
    fleets = []
    for k, per_s in enumerate(loads):
        counts = {"first_tokens": 400.0 * k, "late_first_tokens": late(k)}
        fleets.append(reading(*[one(per_s / 6, name=n, **counts) for n in range(6)]))
    return numbers(looks(scaler(start_s=100.0), fleets))


# --- A queue that stays deep asks for one replica more.


def deep(waiting: float, capacity_per_s: float = 1000.0, **numbers: float) -> ReplicaLoad:
    return one(
        numbers.pop("arrivals", 0.0), waiting=waiting, capacity_per_s=capacity_per_s, **numbers
    )


def test_a_queue_that_stays_deep_asks_for_one_more_whatever_the_model_says():
    # 129 waiting is more than twice the cap; the capacity seems ample all the same.
    scale = scaler()
    seen = [(100.0, 129.0, 1), (129.9, 129.0, 1), (130.0, 129.0, 2), (131.0, 128.0, 1)]
    seen += [(132.0, 129.0, 1), (161.9, 129.0, 1), (162.0, 129.0, 2)]
    for now_s, waiting, number in seen:
        assert scale.decide(reading(deep(waiting), now_s=now_s)).desired == number


@pytest.mark.parametrize(
    ("waiting", "asked"),
    [
        # More than twice the caps for 60 s, and working off: what runs is enough.
        ((400, 380, 360, 340, 320, 300, 280), [1] * 7),
        ((400, 380, 360, 390, 370, 350, 400), [1] * 6 + [2]),  # as 30 s before, and more
        ((400, 400, 400, 400, 380, 370, 360), [1] * 3 + [2] + [1] * 3),
    ],
)
def test_a_deep_queue_that_shrinks_asks_for_no_more(waiting, asked):
    assert numbers(looks(scaler(), [reading(deep(each)) for each in waiting])) == asked


def test_a_stuck_engine_with_a_deep_queue_is_worth_one_replica_more_and_no_fleet():
    """200 wait in it for hours, three times what would be too much for all four together."""

    def wanted(engines: int) -> int:
        stuck = one(waiting=200.0, running=8.0, max_running=8.0)
        scale, most = scaler(peak_s=60.0), engines
        for now_s in range(0, 3600, 10):
            others = [one(3.0, running=6.0, max_running=8.0)] * (most - 1)
            most = max(most, scale.decide(reading(stuck, *others, now_s=float(now_s))).desired)
        return most

    assert [wanted(1), wanted(2), wanted(4)] == [2, 2, 4]


@pytest.mark.parametrize(("engines", "wanted"), [(2, 0), (3, 5)])
def test_a_deep_queue_in_more_than_half_of_the_engines_is_deep(engines, wanted):
    # Twice what is too much for two is what is too much for all.
    replicas = [one(1.0, waiting=300.0)] * engines + [one(1.0)] * (4 - engines)
    last = looks(scaler(), [reading(*replicas)] * 5)[-1]
    assert (last.desired if last.reason == "deep_queue" else 0) == wanted


@pytest.mark.parametrize(("refused_per_s", "wanted"), [(0.0, 1), (4.0, 2)])
def test_what_is_refused_would_make_a_queue_deep(refused_per_s, wanted):
    """100 wait at a cap of 64: a queue of 2 caps only with the requests refused in 30 s."""
    busy = deep(100.0, arrivals=8.0, running=64.0, refused_per_s=refused_per_s)
    first, last = looks(scaler(), [reading(busy)] * 2, 30.0)
    assert (first.desired, last.desired) == (1, wanted)
    says = "100 requests wait and 4.0/s are refused, more than 2 times"
    assert (says in last.words) == (wanted == 2)


def test_those_above_the_least_are_counted_without_the_share_that_may_go():
    fleet = replace(reading(*[one(8.0)] * 6), minimum=2)
    usual, careful = (
        Scaler(1.0, 20.0, 2.0, 30.0, 300.0, 3.0, 10.0, at_risk=at_risk).decide(fleet)
        for at_risk in (0.0, 0.5)
    )
    assert usual.desired > 2 and usual.reason == careful.reason == "capacity"
    assert careful.desired - 2 == pytest.approx(2 * (usual.desired - 2), abs=1)
    assert "; 50% of those above 2 may be gone" in careful.words
    assert "may be gone" not in usual.words


def test_requests_that_do_not_count_keep_the_last_replica_and_no_other():
    held = replace(one(0.0), running=0.0, unscaled=90.0)
    scale = scaler()
    fleets = [reading(held, held, held, minimum=0)] * 60
    assert looks(scale, fleets)[-1].desired == 1
    idle = replace(held, unscaled=0.0)
    assert looks(scaler(), [reading(idle, minimum=0)] * 60)[-1].desired == 0


def test_silent_replicas_are_taken_to_be_as_busy_when_fewer_would_do():
    fleet = reading(*[one(6.0)] * 2, current=6, target=6)
    # 1.76 x 6 / 2 and something to spare; of the two alone: 2
    assert looks(scaler(peak_s=30.0), [fleet] * 2, 40.0)[-1].desired == 6


def test_a_replica_that_a_deep_queue_asked_for_is_kept_for_the_past():
    fleets = [reading(*[deep(w, arrivals=1.0)] * 2) for w in [200.0] * 4 + [0.0] * 7]
    # It is given up 70 s after it was asked for.
    assert numbers(looks(scaler(peak_s=60.0), fleets)) == [2, 2, 2, 3] + [2] * 6 + [1]
