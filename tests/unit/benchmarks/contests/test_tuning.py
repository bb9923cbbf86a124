"""Static settings: the line they begin on, and the climb to the best of them."""

import math

import pytest

from benchmarks.contests.tuning import Setting, climb, on_line, starts
from replicas.profiles.profile import LinearCost, StepProfile
from simulator.workloads.requests import LengthStats

LENGTHS = LengthStats(mean_input=250, mean_output=101, mean_held=300, mean_context=125)
# 20 ms + B 0.1 ms + K 1 us + P 0.05 ms + X 0.4 us: a decode at 300 tokens costs 0.4 ms, a token of
# a prompt at 125 costs 0.1.
PLANT = StepProfile("plant", "", 100_000, 256, 2048, LinearCost(0.020, 1e-4, 1e-6, 0.5e-4, 0.4e-6))


def test_the_line_is_where_a_full_step_takes_the_sla() -> None:
    # 20 + 0.4 cap + 0.1 (chunk - cap) = 50
    assert on_line(PLANT, LENGTHS, 0.05005, 50) == Setting(50, 150)
    assert on_line(PLANT, LENGTHS, 0.05005, 25) == Setting(25, 225)
    assert on_line(PLANT, LENGTHS, 0.05005, 100) == Setting(100, 100)  # more decodes than fit


def test_a_search_begins_around_the_decodes_of_the_fluid_limit_and_at_vllms_own_cap() -> None:
    # 10/s x 50.05 ms x 100 decodes each: 50 at once
    found = starts(PLANT, LENGTHS, 0.05005, 10.0)
    assert found[1] == Setting(50, 150)
    assert found[-1] == Setting(150, 150)
    assert [s.cap for s in found] == [63, 50, 85, 125, 150]
    assert all(s.chunk >= s.cap for s in found)


def test_limits_change_by_a_token_at_least_and_the_cap_stays_within_the_chunk() -> None:
    assert Setting(3, 8).scaled(1.04, 1 / 1.04) == Setting(4, 7)
    assert Setting(80, 80).scaled(1.04, 1.0) == Setting(80, 80)
    assert Setting(80, 80).scaled(1.0, 1 / 1.04) == Setting(77, 77)
    assert Setting(1, 1).scaled(1 / 1.04, 1 / 1.04) == Setting(1, 1)


@pytest.mark.parametrize("begin", [Setting(20, 400), Setting(200, 200), Setting(76, 120)])
def test_the_climb_ends_within_its_last_step_of_the_peak(begin: Setting) -> None:
    # A ridge that lies across both limits, with its peak at (80, 118).
    def merit(s: Setting) -> float:
        cap, chunk = math.log(s.cap / 80), math.log(s.chunk / 118)
        return -(cap**2) - 4 * chunk**2 - cap * chunk

    best = -math.inf
    asked = []

    def better(setting: Setting) -> bool:
        nonlocal best
        asked.append(setting)
        found = merit(setting) > best
        best = max(best, merit(setting))
        return found

    peak = climb(better, [begin])
    assert abs(math.log(peak.cap / 80)) < 0.04
    assert abs(math.log(peak.chunk / 118)) < 0.04
    assert len(asked) == len(set(asked)) < 100  # each costs a run


def test_without_steps_the_best_of_the_first_is_taken() -> None:
    first = [Setting(1, 10), Setting(3, 10), Setting(2, 10)]
    seen: list[int] = []

    def better(setting: Setting) -> bool:
        seen.append(setting.cap)
        return setting.cap == max(seen)

    assert climb(better, first, ()) == Setting(3, 10)
