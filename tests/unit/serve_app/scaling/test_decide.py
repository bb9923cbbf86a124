"""From one look at a fleet to a number of replicas."""

from dataclasses import replace

import pytest

from serve_app.scaling.decide import Scaler
from serve_app.scaling.demand import load_of
from serve_app.scaling.reading import FleetReading, ReplicaLoad
from serve_app.scaling.reasons import Decision

LOAD = ReplicaLoad(
    running=10.0,
    waiting=0.0,
    arrivals_per_s=0.0,
    demand_per_s=0.0,
    refused_per_s=0.0,
    max_running=64.0,
    capacity_per_s=8.0,
    capacity_error_frac=0.0,
    out_of_reach=False,
)
UNMODELLED = replace(LOAD, capacity_per_s=None, running=64.0)


def scaler(start_s: float = 10.0, peak_s: float = 300.0, queue_for_s: float = 30.0) -> Scaler:
    return Scaler(1.0, 20.0, 2.0, queue_for_s, peak_s, 3.0, start_s)


def one(arrivals: float = 0.0, **numbers: float) -> ReplicaLoad:
    return replace(LOAD, arrivals_per_s=arrivals, demand_per_s=arrivals, **numbers)


def reading(
    *replicas: ReplicaLoad, now_s: float = 0.0, target: int | None = None, **more: float
) -> FleetReading:
    current = len(replicas)
    known = FleetReading(
        now_s=now_s,
        current=current,
        target=current if target is None else target,
        minimum=1,
        maximum=50,
        queued=0.0,
        ongoing=None,
        replicas=replicas,
    )
    return replace(known, **more)  # type: ignore[arg-type]


def desired(*replicas: ReplicaLoad, **more: float) -> int:
    return scaler().decide(reading(*replicas, **more)).desired  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arrivals", "replicas"), [(6.8, 1), (7.5, 2), (13.8, 2), (14.2, 3), (1e12, 50)]
)
def test_more_are_asked_for_at_once_within_the_bounds(arrivals: float, replicas: int) -> None:
    assert desired(one(arrivals)) == replicas


def test_demand_is_counted_in_requests_of_the_size_that_capacity_is() -> None:
    longer = replace(one(6.0), demand_per_s=12.0)
    assert (desired(one(6.0)), desired(longer)) == (1, 2)


def test_capacities_of_several_replicas_are_averaged() -> None:
    assert desired(one(10.0, capacity_per_s=4.0), one(10.0, capacity_per_s=12.0)) == 3


def test_a_new_replica_without_a_model_does_not_hide_the_others() -> None:
    assert desired(one(10.0), replace(UNMODELLED, running=0.0)) == 2


def test_what_waits_outside_counts_as_far_as_it_waits_when_a_replica_has_started() -> None:
    def after(start_s: float) -> int:
        return scaler(start_s).decide(reading(one(2.0), queued=400.0)).desired

    assert after(60.0) == 1  # 40 are left, as 6/s are free: 0.30 + 40 / 60 / 8
    assert after(20.0) == 3  # 0.30 + 280 / 20 / 8
    assert after(2.0) == 3  # 0.30 + 388 / 20 / 8


def test_what_waits_in_an_engine_is_worth_a_replica_at_most() -> None:
    # 160 is what a replica carries in 20 s; nothing is free to work it off.
    def more(*waiting: float) -> int:
        return desired(*[one(6.8, waiting=each) for each in waiting]) - len(waiting)

    assert (more(0.0, 0.0), more(0.0, 120.0), more(0.0, 9000.0), more(900.0, 900.0)) == (0, 1, 1, 2)


def test_what_waits_and_will_be_gone_when_a_replica_has_started_asks_for_none() -> None:
    def after(start_s: float) -> int:
        return scaler(start_s).decide(reading(one(6.0, waiting=60.0))).desired

    assert (after(15.0), after(2.0)) == (2, 2)  # 30 left: 0.87 + 0.19; 56 left: 0.87 + 0.35
    assert after(30.0) == 1  # none left


def test_what_does_not_shrink_in_spite_of_its_capacity_asks_for_more() -> None:
    # 100 wait on, though 5/s seem to be free: they would be gone in 20 s.
    scale, fleet = scaler(start_s=30.0), reading(one(3.0, waiting=100.0))
    looks = [replace(fleet, now_s=float(now_s)) for now_s in range(0, 60, 10)]
    numbers = [scale.decide(look).desired for look in looks]
    assert numbers == [1, 1, 1, 2, 2, 2]  # 0.44 + 100 / 160


def test_load_above_what_runs_is_asked_for_with_what_will_wait_once_it_lasted() -> None:
    # 17/s at one of 8/s: 9/s more wait with every second of the start, behind which it is then.
    scale = scaler(start_s=100.0)
    assert scale.decide(reading(one(7.5))).desired == 2
    first = scale.decide(reading(one(17.0), now_s=10.0, target=2))
    assert first.desired == 3  # 17 / 8, and the margin
    assert scale.decide(reading(one(17.0), now_s=29.0, target=3)).desired == 3
    lasting = scale.decide(reading(one(17.0), now_s=41.0, target=3))
    assert lasting.desired == 4


def test_who_is_refused_asks_for_replicas_and_will_not_wait() -> None:
    scale = scaler(start_s=100.0)
    refused = one(16.0, refused_per_s=10.0)
    for now_s in (0.0, 20.0, 40.0):
        assert scale.decide(reading(refused, now_s=now_s)).desired == 3


def held(scale: Scaler, arrivals: float, number: int, since_s: int, until_s: int) -> Decision:
    """``arrivals`` for each of ``number`` replicas from ``since_s`` on, every 10 s."""
    for now_s in range(since_s, until_s + 1, 10):
        decision = scale.decide(reading(*[one(arrivals)] * number, now_s=float(now_s)))
    return decision


def test_fewer_are_asked_for_where_they_carry_the_peak_of_the_recent_past() -> None:
    scale = scaler(peak_s=300.0)
    assert held(scale, 6.8, 4, 0, 0).desired == 4
    assert held(scale, 6.8, 4, 10, 300).desired == 4
    # What three starts (30 s) had use for is kept, and what was asked for in the last 30 s.
    assert held(scale, 3.0, 4, 310, 360).desired == 4
    falls = held(scale, 3.0, 4, 370, 370)
    assert (falls.desired, falls.reason) == (2, "capacity")


def test_without_a_known_capacity_the_highest_queue_of_the_recent_past_counts() -> None:
    scale, deep = scaler(peak_s=60.0), replace(UNMODELLED, waiting=60.0)
    looks = [[deep] * 4, *[[replace(UNMODELLED, running=10.0)] * 4] * 7]
    numbers = [scale.decide(reading(*look, now_s=10.0 * k)).desired for k, look in enumerate(looks)]
    assert numbers == [8] + [4] * 6 + [1]


def test_nothing_is_given_up_before_the_past_is_known() -> None:
    scale = scaler(peak_s=300.0)
    assert held(scale, 3.0, 4, 0, 290).desired == 4
    assert held(scale, 3.0, 4, 300, 300).desired == 2


def test_the_past_is_at_least_three_starts_long() -> None:
    scale = scaler(peak_s=30.0, start_s=100.0)
    assert held(scale, 3.0, 4, 0, 290).desired == 4
    assert held(scale, 3.0, 4, 300, 300).desired == 2


def test_a_load_at_the_edge_of_a_replica_does_not_flap() -> None:
    scale, numbers, running = scaler(peak_s=60.0), [], 2
    for now_s in range(0, 1200, 10):
        arrivals = 15.8 if now_s // 150 % 2 else 16.2  # 1.97 and 2.03 replicas
        fleet = reading(*[one(arrivals / running)] * running, now_s=float(now_s))
        running = scale.decide(fleet).desired
        numbers.append(running)
    assert set(numbers) == {3}


def test_a_capacity_that_is_not_sure_gives_up_fewer() -> None:
    def left(error_frac: float) -> int:
        scale = scaler(peak_s=30.0)
        for now_s in (0.0, 40.0):
            fleet = [one(3.0, capacity_error_frac=error_frac)] * 4
            decision = scale.decide(reading(*fleet, now_s=now_s))
        return decision.desired

    assert (left(0.0), left(0.3)) == (2, 3)  # 1.76 and 2.29


def test_silent_replicas_are_taken_to_be_as_busy_when_fewer_would_do() -> None:
    scale = scaler(peak_s=30.0)
    for now_s in (0.0, 40.0):
        decision = scale.decide(reading(*[one(6.0)] * 2, now_s=now_s, current=6, target=6))
    assert decision.desired == 6  # 1.76 x 6 / 2 and something to spare; of the two alone: 2
    assert desired(*[one(3.0)] * 2, current=4, target=4) == 4


def test_a_replica_that_says_nothing_keeps_an_idle_fleet_above_zero() -> None:
    # With HAProxy Ray Serve counts what replicas say they serve, so this one may be at work.
    idle = one(running=0.0)

    def last(*said: ReplicaLoad) -> int:
        scale, fleet = scaler(), reading(*said, current=2, target=2, minimum=0, ongoing=0.0)
        looks = [replace(fleet, now_s=float(now_s)) for now_s in range(0, 310, 10)]
        return [scale.decide(look).desired for look in looks][-1]

    assert (last(idle, idle), last(idle)) == (0, 1)


def test_where_no_capacity_is_known_the_queue_alone_decides() -> None:
    assert desired(replace(UNMODELLED, running=10.0)) == 1
    assert desired(replace(UNMODELLED, waiting=60.0)) == 2  # 124 / 64
    assert desired(replace(UNMODELLED, waiting=30.0), queued=30.0) == 2


def test_a_cap_at_which_no_request_waits_asks_for_no_more() -> None:
    assert desired(replace(UNMODELLED, running=40.0, max_running=1.0)) == 1
    assert desired(UNMODELLED) == 1
    assert desired(UNMODELLED, target=2) == 2


def test_queue_depth_goes_by_the_mean_cap() -> None:
    fleet = (
        replace(UNMODELLED, waiting=60.0, running=40.0, max_running=50.0),
        replace(UNMODELLED, waiting=60.0, running=70.0, max_running=78.0),
    )
    assert desired(*fleet) == 4  # 230 / 64


def test_a_cap_below_what_runs_counts_as_what_runs() -> None:
    # 45 requests at 40 each, not at 1.
    assert desired(replace(UNMODELLED, waiting=5.0, running=40.0, max_running=1.0)) == 2


OUT = replace(LOAD, out_of_reach=True, max_running=None, capacity_per_s=None, arrivals_per_s=9.0)


def test_a_few_out_of_reach_stand_beside_those_that_decide() -> None:
    # 19/s at 6.8 each are three, and the one that does not count.
    odd = replace(OUT, demand_per_s=9.0)
    assert desired(odd, one(10.0)) == 4


def test_out_of_reach_and_without_requests_a_fleet_shrinks_once_the_past_is_known() -> None:
    scale = scaler(peak_s=60.0)
    empty = replace(OUT, running=0.0, arrivals_per_s=0.0)
    assert scale.decide(reading(OUT, OUT)).reason == "out_of_reach"
    numbers = [
        scale.decide(reading(empty, empty, now_s=float(now_s), minimum=0)).desired
        for now_s in range(10, 80, 10)
    ]
    assert numbers == [2] * 6 + [0]


def test_a_first_replica_is_asked_for_by_what_waits_outside() -> None:
    assert scaler().decide(reading(target=0, minimum=0, queued=3.0)).desired == 1
    assert scaler().decide(reading(target=0, minimum=0)).desired == 0
    assert scaler().decide(reading(target=1, minimum=0)).desired == 1


def test_after_looks_that_are_missing_the_past_is_unknown() -> None:
    scale = scaler(peak_s=300.0)
    held(scale, 6.8, 4, 0, 950)
    assert held(scale, 1.0, 4, 1400, 1690).desired == 4
    assert held(scale, 1.0, 4, 1700, 1700).desired == 1


def test_who_is_refused_is_taken_off_in_the_size_that_demand_has() -> None:
    big = replace(one(100.0, refused_per_s=90.0), demand_per_s=400.0)
    assert load_of(reading(big, one(3.0))).queueing_per_s == pytest.approx(40.0 + 3.0)


def test_what_waits_outside_need_not_be_gone_before_a_replica_has_started() -> None:
    def after(start_s: float) -> int:
        scale = scaler(start_s)  # drain_s is 20
        return scale.decide(reading(one(2.0), queued=700.0)).desired

    assert after(60.0) == 2  # 340 are left: (2 + 340 / 60) / 6.8; within 20 s it were 3
    assert after(10.0) == 5  # 640: (2 + 640 / 20) / 6.8; within 10 s it were 10


def test_the_words_name_the_time_whose_load_was_counted() -> None:
    scale = scaler(start_s=100.0)
    for now_s in range(0, 310, 10):
        decision = scale.decide(reading(*[one(5.3)] * 4, now_s=float(now_s)))
    assert decision.reason == "peak" and "the last 100 s had use for 3.0 replicas" in decision.words


def test_a_start_that_is_under_way_does_not_make_what_waits_outside_more_urgent() -> None:
    scale, fleet = scaler(start_s=60.0), reading(one(8.0), target=2, queued=480.0)
    numbers = [scale.decide(replace(fleet, now_s=now_s)).desired for now_s in (0.0, 30.0)]
    assert numbers == [3, 3]  # (9.2 + 480 / 60) / 8; the next one runs in 60 s, then in 30


def test_in_a_large_fleet_less_than_one_replica_is_kept_to_spare() -> None:
    scale, most = scaler(peak_s=60.0), replace(UNMODELLED, running=39.5 * 64 / 45)
    looks = [reading(*[most] * 45, now_s=10.0 * k) for k in range(7)]
    assert [scale.decide(look).desired for look in looks] == [45] * 6 + [41]  # of 39.5: 5% is 2


def test_before_capacity_is_known_more_are_asked_for_only_where_somebody_waits() -> None:
    # More run than the cap has become: they drain, and it holds nobody back.
    assert desired(replace(UNMODELLED, running=300.0)) == 1
    assert desired(replace(UNMODELLED, running=300.0, waiting=1.0)) > 1
