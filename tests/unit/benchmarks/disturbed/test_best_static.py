"""Settings that a search has found, in their file."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.contests.tuning import Setting
from benchmarks.disturbed.best_static import entry_of, read, settings_of, unsearched, write
from benchmarks.disturbed.rows import DISTURBED, LOADS, Row
from benchmarks.disturbed.search import Best
from controller.errors import ConfigError

ROWS = [Row(LOADS[0], disturbed) for disturbed in DISTURBED[:3]]
BEST = Best(Setting(80, 118), 0.123456, 55)


def test_what_was_found_is_read_again_beside_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    assert read(path) == {}
    write({ROWS[0].id: entry_of(ROWS[0], BEST, "abc")}, path)
    write({ROWS[1].id: entry_of(ROWS[1], BEST, "def")}, path)
    found = read(path)
    assert [found[row.id].commit for row in ROWS[:2]] == ["abc", "def"]
    assert (found[ROWS[0].id].j, found[ROWS[0].id].rate_per_s) == (0.1235, 4.0)
    assert settings_of(ROWS[:2], found) == dict.fromkeys(ROWS[:2], Setting(80, 118))


def test_a_row_without_a_search_is_an_error_that_names_it() -> None:
    found = {ROWS[0].id: entry_of(ROWS[0], BEST, "abc")}
    with pytest.raises(ConfigError, match=f"{ROWS[2].id}: make disturbed-search"):
        settings_of(ROWS, found)
    assert unsearched(ROWS, found) == ROWS[1:]


def test_a_row_that_has_changed_since_is_searched_anew() -> None:
    entry = entry_of(ROWS[0], BEST, "abc")
    assert unsearched(ROWS[:1], {ROWS[0].id: entry}) == []
    assert unsearched(ROWS[:1], {ROWS[0].id: replace(entry, rate_per_s=4.2)}) == ROWS[:1]
