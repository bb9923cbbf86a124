"""What load is provided for."""

import random

import pytest

from serve_app.scaling.forecast import Forecast

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


def test_a_rise_from_nothing_does_not_ask_for_as_many_times_as_much_ever_after() -> None:
    # Ten minutes of rise to ten replicas, 1.7 in the time of a start, and an hour of ten.
    loads = [10.0 * min(k / 60, 1.0) for k in range(360)]
    provided = watched([0.0] * 360 + loads)[360:]
    assert all(got >= 0.9 * load for got, load in zip(provided, loads, strict=True))
    assert max(provided) < 12.0


@pytest.mark.parametrize("lead", [[0.0] * 30, [0.005] * 30, [0.0] * 28 + [0.01] * 2])
def test_the_first_requests_after_none_or_a_probe_do_not_stand_for_the_rises_to_come(
    lead: list[float],
) -> None:
    # Idle for five minutes, a third of a replica's load, ten times as much, and back.
    provided = watched([*lead] + [0.35] * 30 + [3.5] * 40 + [0.35] * 150, start_s=50.0)
    assert max(provided) < 4.5 and max(provided[120:]) < 0.7
    assert any(lead) or max(provided[:60]) < 0.7


def test_noise_is_averaged_and_bursts_are_covered() -> None:
    rng = random.Random(1)
    noisy = watched([rng.gauss(10.0, 0.5) for _ in range(720)])[-100:]
    assert 10.0 < sum(noisy) / 100 < 11.0
    # Now twice the mean, now nothing, for tens of seconds each: nearly all is provided for.
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


@pytest.mark.parametrize("silence_s", [1800, 3600, 7200])
def test_a_load_that_is_back_after_a_silence_is_provided_for(silence_s: int) -> None:
    loads = [2.0] * 720 + [0.0] * (silence_s // 10) + [2.0] * 6
    assert watched(loads)[-1] >= 1.8


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
