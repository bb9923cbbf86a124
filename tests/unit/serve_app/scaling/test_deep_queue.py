"""A queue that stays deep asks for one replica more."""

from dataclasses import replace

from tests.unit.serve_app.scaling.test_decide import one, reading, scaler


def test_a_queue_that_stays_deep_asks_for_one_more_whatever_the_model_says() -> None:
    # 129 waiting is more than twice the cap; the capacity seems ample all the same.
    scale = scaler()

    def at(now_s: float, waiting: float = 129.0) -> int:
        deep = one(waiting=waiting, capacity_per_s=1000.0)
        return scale.decide(reading(deep, now_s=now_s)).desired

    assert [at(100.0), at(129.9), at(130.0)] == [1, 1, 2]
    assert [at(131.0, waiting=128.0), at(132.0), at(161.9), at(162.0)] == [1, 1, 1, 2]


def test_a_deep_queue_never_asks_for_fewer_than_the_model_does() -> None:
    scale = scaler(start_s=0.0, queue_for_s=0.0)
    assert scale.decide(reading(one(100.0, waiting=500.0))).desired == 16  # 100 / 6.8 + 1


def test_a_replica_that_a_deep_queue_asked_for_is_kept_for_the_past() -> None:
    scale = scaler(peak_s=60.0, start_s=10.0)

    def at(now_s: float, waiting: float) -> int:
        deep = one(1.0, waiting=waiting, capacity_per_s=1000.0)
        return scale.decide(reading(*[deep] * 2, now_s=now_s)).desired

    assert [at(now_s, 200.0) for now_s in (0.0, 10.0, 20.0, 30.0)] == [2, 2, 2, 3]
    assert [at(now_s, 0.0) for now_s in (40.0, 60.0, 80.0)] == [2, 2, 2]
    assert at(100.0, 0.0) == 1  # 70 s after it was asked for


def test_a_deep_queue_that_shrinks_asks_for_no_more() -> None:
    # More than twice the caps for 60 s, and working off: what runs is enough.
    def asked(*waiting: float) -> list[int]:
        scale = scaler(queue_for_s=30.0)
        looks = [one(waiting=each, capacity_per_s=1000.0) for each in waiting]
        return [scale.decide(reading(w, now_s=10.0 * k)).desired for k, w in enumerate(looks)]

    assert asked(400, 380, 360, 340, 320, 300, 280) == [1] * 7
    assert asked(400, 380, 360, 390, 370, 350, 400) == [1] * 6 + [2]  # as 30 s before, and more
    assert asked(400, 400, 400, 400, 380, 370, 360) == [1] * 3 + [2] + [1] * 3


def test_a_stuck_engine_with_a_deep_queue_is_worth_one_replica_more_and_no_fleet() -> None:
    """200 wait in it for hours, three times what would be too much for all four together."""

    def wanted(engines: int) -> int:
        stuck = one(waiting=200.0, running=8.0, max_running=8.0)
        scale, most = scaler(peak_s=60.0), engines
        for now_s in range(0, 3600, 10):
            others = [one(3.0, running=6.0, max_running=8.0)] * (most - 1)
            most = max(most, scale.decide(reading(stuck, *others, now_s=float(now_s))).desired)
        return most

    assert [wanted(1), wanted(2), wanted(4)] == [2, 2, 4]


def test_a_deep_queue_in_half_of_the_engines_is_deep() -> None:
    def wanted(deep: int) -> int:
        replicas = [one(1.0, waiting=300.0)] * deep + [one(1.0)] * (4 - deep)
        looks = [scale.decide(reading(*replicas, now_s=10.0 * k)) for k in range(5)]
        return looks[-1].desired if looks[-1].reason == "deep_queue" else 0

    scale = scaler(queue_for_s=30.0)
    assert wanted(2) == 0  # twice what is too much for them is what is too much for all
    scale = scaler(queue_for_s=30.0)
    assert wanted(3) == 5


def test_a_queue_that_was_empty_in_between_has_not_stayed_deep() -> None:
    scale, deep = scaler(), one(waiting=129.0, capacity_per_s=1000.0)
    looks = [deep, one(running=0.0, capacity_per_s=1000.0), deep]
    numbers = [scale.decide(reading(r, now_s=20.0 * k)).desired for k, r in enumerate(looks)]
    assert numbers == [1, 1, 1]


def test_what_is_refused_would_make_a_queue_deep() -> None:
    """100 wait at a cap of 64: a queue of 2 caps only with those that were refused in 30 s."""
    busy = one(8.0, running=64.0, waiting=100.0, capacity_per_s=1000.0)
    for refused_per_s, wanted in ((0.0, 1), (4.0, 2)):
        scale, load = scaler(), replace(busy, refused_per_s=refused_per_s)
        decisions = [scale.decide(reading(load, now_s=now_s)) for now_s in (100.0, 130.0)]
        assert [d.desired for d in decisions] == [1, wanted]
    assert "100 requests wait and 4.0/s are refused, more than 2 times" in decisions[-1].words


def test_one_engine_that_refuses_all_is_not_worth_a_fleet() -> None:
    stuck = one(30.0, running=64.0, waiting=100.0, refused_per_s=30.0, capacity_per_s=1000.0)
    scale, idle = scaler(), one(1.0, capacity_per_s=1000.0)
    looks = [scale.decide(reading(stuck, *[idle] * 4, now_s=now_s)) for now_s in (100.0, 130.0)]
    assert "deep_queue" not in [look.reason for look in looks]
