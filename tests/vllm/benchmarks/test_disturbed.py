"""``make disturbed`` on a few requests: searched, compared, and why a cap may be left out."""

from dataclasses import replace

from benchmarks.contests.tuning import Setting
from benchmarks.disturbed.compared import bounds_of
from benchmarks.disturbed.replays import Draw, Task, replayed, run
from benchmarks.disturbed.rows import DISTURBED, LOADS, Row
from benchmarks.disturbed.search import STATIC, Search, grid, neighbours, search

ROW = Row(LOADS[0], DISTURBED[-1])
FEW = 0.05  # of the requests


def test_a_cap_that_is_never_reached_changes_nothing() -> None:
    draw = Draw(ROW)
    none = replayed(draw, Setting(256, 300).of(STATIC), 1, FEW)
    assert none.peak_running < 256
    assert replayed(draw, Setting(none.peak_running, 300).of(STATIC), 1, FEW) == none
    less = replayed(draw, Setting(none.peak_running - 1, 300).of(STATIC), 1, FEW)
    assert less == replace(less, peak_running=none.peak_running - 1) != none


def test_a_small_search_ends_on_the_grid_or_half_way_to_a_neighbour() -> None:
    best = search(Search(ROW, small=True))
    settings = grid(Draw(ROW))
    between = [near for setting in settings for near in neighbours(setting, settings)]
    assert best.setting in settings + between
    assert 0 < best.j < 10


def test_policies_of_a_row_are_compared_on_the_same_requests() -> None:
    static, again, ours = (run(Task(ROW, spec, 1, FEW)) for spec in (STATIC, STATIC, "adaptive"))
    assert static == again
    assert static.tokens_per_s > 0 < ours.tokens_per_s
    (bound,) = bounds_of(ROW, (1,))
    assert bound.ttft_s < static.ttft_s + ours.ttft_s
