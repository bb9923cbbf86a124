"""Successive halving over a grid of static settings."""

import pytest

from benchmarks.contests.tuning import Setting
from benchmarks.disturbed.replays import Draw, Figures
from benchmarks.disturbed.rows import LOADS, NOTHING, Load, Row
from benchmarks.disturbed.search import Rung, grid, halved, neighbours

PEAK = 20  # requests that run at once where no cap is below that


def figures(j: float, peak: int) -> Figures:
    return Figures(j, 0.0, j, 100.0, 50.0, 0, 50.0, peak)


class Engine:
    """J has its least at a chunk of 100 and no cap; few requests show it no better than at 200."""

    def __init__(self) -> None:
        self.asked: list[tuple[Setting, int, float]] = []

    def figures(self, setting: Setting, seed: int, share: float) -> Figures:
        self.asked.append((setting, seed, share))
        off = abs(setting.chunk - 100) if share > 0.1 else abs(setting.chunk - 200)
        return figures(1 + off / 100 + max(PEAK - setting.cap, 0), min(setting.cap, PEAK))


SETTINGS = [Setting(cap, chunk) for chunk in (50, 100, 200, 400) for cap in (256, 40, 10)]
RUNGS = (Rung(0.1, (7,), 3), Rung(0.5, (7,), 2), Rung(1.0, (7, 8), 1))


def test_the_best_of_the_longest_look_wins() -> None:
    engine = Engine()
    assert halved(SETTINGS, RUNGS, engine.figures) == (Setting(256, 100), 1.0)
    looks = [(share, seed) for _, seed, share in engine.asked]
    assert [looks.count(look) for look in ((0.1, 7), (0.5, 7), (1.0, 7), (1.0, 8))] == [8, 3, 2, 2]


def test_a_cap_that_was_never_reached_is_not_tried_again() -> None:
    engine = Engine()
    halved(SETTINGS, RUNGS, engine.figures)
    assert {setting.cap for setting, _, _ in engine.asked} == {256, 10}


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_the_grid_has_vllms_default_and_only_what_vllm_starts_with(load: Load) -> None:
    draw = Draw(Row(load, NOTHING))
    settings = grid(draw)
    default = Setting(draw.profile.max_num_seqs, draw.profile.max_num_batched_tokens)
    assert default in settings
    assert all(1 <= setting.cap <= setting.chunk for setting in settings)
    assert settings == sorted(settings, key=lambda s: (s.chunk, -s.cap))
    assert 25 <= len(settings) == len(set(settings))


def test_neighbours_are_half_way_to_the_next_of_the_grid() -> None:
    assert neighbours(Setting(40, 200), SETTINGS) == [
        Setting(40, 141),
        Setting(101, 200),
        Setting(20, 200),
        Setting(40, 283),
    ]


def test_where_no_cap_binds_a_neighbours_cap_goes_with_its_chunk() -> None:
    settings = [Setting(min(cap, chunk), chunk) for chunk in (50, 100, 200) for cap in (256, 25)]
    near = neighbours(Setting(100, 100), settings)
    assert near == [Setting(71, 71), Setting(71, 100), Setting(141, 141)]
