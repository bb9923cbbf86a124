"""What load is provided for."""

import random

import pytest

from serve_app.scaling.forecast import MEMORY_S, Base, Forecast

SHARE = 0.01


def watched(loads: list[float], start_s: float = 100.0, every_s: float = 10.0) -> list[float]:
    forecast = Forecast()
    return [forecast.look(k * every_s, load, start_s, SHARE) for k, load in enumerate(loads)]


def test_before_an_error_was_seen_some_tenths_are_taken_to_be_usual() -> None:
    # Of (0.8 ... 1.2) of the first load, the worst start left out, 1% of what came is above 1.12.
    assert 11.0 < watched([10.0])[0] < 11.3
    assert 110.0 < watched([100.0])[0] < 113.0


def test_a_load_that_does_not_move_needs_what_it_is() -> None:
    assert 9.9 <= watched([10.0] * 400)[-1] <= 10.0  # but for the share


NOWHERE = (0.0, -1.0)


def learned(came: list[float], every_s: float = 5.0) -> Base:
    """What came, where a load of 1 had been forecast; what was taken to be known has passed."""
    base = Base(10.0, 1.0)
    for k, load in enumerate(came):
        base.learn(MEMORY_S + every_s * k, load, 1.0)
    return base


def test_the_margin_leaves_a_share_of_what_came_above_it() -> None:
    came = [1.0 if k % 10 else 1.5 for k in range(600)]
    margin = learned(came).margin(SHARE, NOWHERE)
    above = sum(max(load - 1 - margin, 0.0) for load in came) / sum(came)
    assert above == pytest.approx(SHARE)


@pytest.mark.parametrize("more", [1.0, 2.0])
def test_where_more_may_be_left_than_ever_came_above_the_base_less_is_provided(more: float) -> None:
    """In 3% of the time twice or thrice the base of 1 came: 0.03 and 0.06 of it are above."""
    came = [1.0 + more * (k % 100 < 3) for k in range(600)]
    share = 0.1
    margin = learned(came).margin(share, NOWHERE)
    above = sum(max(load - 1 - margin, 0.0) for load in came) / sum(came)
    assert margin < 0 and above == pytest.approx(share)


def test_an_error_counts_by_the_load_it_is_of() -> None:
    """Half of the time a tenth of a replica had been forecast and a whole one came."""
    base = Base(10.0, 1.0)
    for k in range(700):
        came, forecast = ((1.0, 0.1), (20.0, 20.0))[k % 2]
        base.learn(MEMORY_S + 5.0 * k, came, forecast)
    above = 0.9 - base.margin(SHARE, NOWHERE)
    assert above == pytest.approx(SHARE * 21.0, rel=0.01)


def test_a_rise_from_nothing_does_not_ask_for_as_many_times_as_much_ever_after() -> None:
    # Ten minutes of rise to ten replicas, 1.7 in the time of a start, and an hour of ten.
    loads = [10.0 * min(k / 60, 1.0) for k in range(360)]
    provided = watched([0.0] * 360 + loads)[360:]
    assert all(got >= 0.9 * load for got, load in zip(provided, loads, strict=True))
    assert max(provided) < 12.0


def test_what_came_too_seldom_to_be_provided_for_is_left_out() -> None:
    # Four times the load, here and there, in 1.5% of the time: 4% of all is above the usual.
    came = [4.0 if k % 66 == 0 else 1.0 for k in range(660)]
    assert learned(came).margin(SHARE, NOWHERE) < 0.1


@pytest.mark.parametrize(("start_s", "below"), [(100.0, False), (300.0, True)])
def test_the_one_time_as_long_as_a_start_that_nobody_foresaw_is_left_out(
    start_s: float, below: bool
) -> None:
    # A step to four times the load, five minutes of errors in an hour.
    base = learned([4.0 if 300 <= k < 360 else 1.0 for k in range(700)])
    unforeseen = base.unforeseen(start_s)
    assert unforeseen[1] - unforeseen[0] == pytest.approx(start_s, abs=5.0)
    assert (base.margin(SHARE, unforeseen) < 0.1) is below


def test_a_load_that_comes_after_none_does_not_ask_for_many_times_as_much() -> None:
    provided = watched([0.0] * 30 + [2.0] * 60)
    assert max(provided) < 3.5 and provided[-1] < 2.4


@pytest.mark.parametrize("lead", [[0.0] * 30, [0.005] * 30, [0.0] * 28 + [0.01] * 2])
def test_the_first_requests_after_none_or_a_probe_do_not_stand_for_the_rises_to_come(
    lead: list[float],
) -> None:
    # Idle for five minutes, a third of a replica's load, ten times as much, and back.
    provided = watched([*lead] + [0.35] * 30 + [3.5] * 40 + [0.35] * 150, start_s=50.0)
    assert max(provided) < 4.5 and max(provided[120:]) < 0.7
    assert any(lead) or max(provided[:60]) < 0.7


def test_an_hour_without_requests_leaves_the_usual_errors() -> None:
    provided = watched([2.0] * 60 + [0.0] * 500 + [2.0] * 60)
    # No error is known any more: those of one replica.
    assert provided[559] < 0.2 and provided[-1] < 2.4


def test_errors_of_more_than_an_hour_ago_are_forgotten() -> None:
    base = learned([2.0 if k % 2 else 1.0 for k in range(100)])
    before = base.margin(SHARE, NOWHERE)
    for k in range(100):
        base.learn(2 * MEMORY_S + 1000.0 + 5.0 * k, 1.0, 1.0)
    assert base.margin(SHARE, NOWHERE) <= 0.0 < 0.8 < before


def test_noise_is_averaged_and_bursts_are_covered() -> None:
    rng = random.Random(1)
    noisy = watched([rng.gauss(10.0, 0.5) for _ in range(720)])[-100:]
    assert 10.0 < sum(noisy) / 100 < 11.0
    # Now twice the mean, now nothing, for tens of seconds each: nearly all of it is provided for.
    bursts = watched([20.0 * (rng.random() < 0.5) for _ in range(720)])[-100:]
    assert 18.5 < sum(bursts) / 100 < 22.0


def test_a_step_is_followed_at_once_and_kept_for_a_start() -> None:
    provided = watched([5.0] * 360 + [20.0] * 30 + [5.0] * 60)
    assert provided[360] > 19.5
    assert provided[390] > 19.5 and provided[395] > 19.5  # it fell 50 s ago
    assert provided[449] < 8.0


def test_after_looks_that_are_missing_only_the_errors_are_remembered() -> None:
    forecast = Forecast()
    for k in range(200):
        forecast.look(10.0 * k, 10.0, 100.0, SHARE)
    assert forecast.look(2100.0, 1.0, 100.0, SHARE) < 1.2
    # A clock that went back; what is left are the usual errors of the first load.
    assert forecast.look(50.0, 3.0, 100.0, SHARE) < 3.0 + 1.2


def test_after_a_silence_the_quickest_base_decides_until_enough_is_known() -> None:
    forecast = Forecast()
    busy, silent = [10.0] * 800, [0.0] * 800
    rise = [0.1 * k for k in range(1, 30)]
    found = [forecast.look(5.0 * k, x, 100.0, SHARE) for k, x in enumerate(busy + silent + rise)]
    # The mean over ten minutes, which costs least here, would have a tenth of it.
    assert all(
        provided >= 0.9 * load for provided, load in zip(found[-10:], rise[-10:], strict=True)
    )


def test_a_clock_that_goes_back_leaves_nothing_behind_that_never_grows_old() -> None:
    forecast = Forecast()
    for k in range(800):
        forecast.look(4e9 + 5.0 * k, 10.0, 100.0, SHARE)
    for k in range(1000):
        forecast.look(1.7e9 + 5.0 * k, 10.0, 100.0, SHARE)
    assert all(len(base._known) <= MEMORY_S / 5.0 + 1 for base in forecast._bases)


def test_what_is_only_taken_to_have_been_seen_costs_nothing() -> None:
    base = Base(10.0, 1.0)
    base.learn(0.0, 2.0, 2.0)
    base.learn(5.0, 2.0, 4.0)
    assert base.cost(1.5) == pytest.approx(3.0 + 1.5)
    assert base.cost(-3.0) == pytest.approx((0.0 + 1.0) / 2)  # never below none


@pytest.mark.parametrize(("forecast", "learned"), [(0.029, 0), (0.03, 1), (0.06, 1)])
def test_errors_are_learned_from_what_is_more_than_nothing(forecast: float, learned: int) -> None:
    base = Base(10.0, 1.0)
    base.learn(0.0, 0.1, forecast)
    assert base.learned == learned


@pytest.mark.parametrize("silence_s", [1800, 3600, 7200])
def test_a_load_that_is_back_after_a_silence_is_provided_for(silence_s: int) -> None:
    loads = [2.0] * 720 + [0.0] * (silence_s // 10) + [2.0] * 6
    assert watched(loads)[-1] >= 1.8


def test_a_noisy_load_after_a_silence_is_provided_for() -> None:
    """A few errors are not given the loss of a whole hour."""
    noisy = [10.0 + 4.0 * ((k * 7919) % 11 - 5) / 5 for k in range(60)]
    provided = watched([5.0] * 720 + [0.0] * 1000 + noisy, every_s=5.0)[-40:]
    came = noisy[-40:]
    above = sum(max(load - got, 0.0) for load, got in zip(came, provided, strict=True))
    assert above < 0.05 * sum(came)


@pytest.mark.parametrize("first", [0.1, 30.0])
def test_what_came_first_says_nothing_of_the_first_hour(first: float) -> None:
    """A controller that begins beside a backlog, or before the first request."""
    provided = watched([first] + [3.0] * 200)
    assert 2.97 <= provided[-1] < 3.6


def test_of_a_load_that_falls_less_is_provided_than_was_needed_a_start_ago() -> None:
    loads = [20.0 - 18.0 * k / 720 for k in range(720)]
    provided = watched(loads)
    # The base is the highest of a start ago; what is above the load is a part of that at most.
    assert all(got - load < 0.2 for got, load in zip(provided[400:], loads[400:], strict=True))
    assert learned([0.5] * 100).margin(SHARE, NOWHERE) == pytest.approx(-0.5, abs=0.01)


def test_errors_taken_to_be_usual_are_of_one_replica_at_least() -> None:
    base = Base(10.0, 1.0)
    base.look(0.0, 0.01, 100.0)
    small = base.margin(SHARE, NOWHERE)
    base.look(5.0, 10.0, 100.0)
    assert 0.05 < small < 0.2 and base.margin(SHARE, NOWHERE) == pytest.approx(10 * small)


def uneven(*then: float, many_late: bool = True) -> float:
    """What is provided for after two hours of a little noise, over which a long mean is best."""
    forecast, found = Forecast(), 0.0
    noisy = [10.0 + 1.5 * ((k * 7919) % 11 - 5) / 5 for k in range(720)]
    for k, load in enumerate([*noisy, *then]):
        found = forecast.look(10.0 * k, load, 100.0, SHARE, many_late and k >= 720)
    return found


def test_where_many_are_late_what_came_in_the_last_start_at_its_highest_is_provided_for() -> None:
    """Uneven arrivals whose mean is that of before."""
    assert uneven(15.0, *[9.5] * 9) == pytest.approx(15.0)
    assert uneven(15.0, *[9.5] * 9, many_late=False) < 12.5
    assert uneven(15.0, *[9.5] * 11) < 12.5  # it is a start ago


def test_one_clump_is_not_provided_for_as_a_whole() -> None:
    # It is over before a replica that is asked for now has started.
    usual = uneven(10.0, 10.0, many_late=False)
    assert uneven(80.0, 10.0) < 2.1 * usual < 80.0
