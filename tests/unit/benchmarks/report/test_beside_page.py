"""Figures beside those of a page."""

import re
from pathlib import Path

import pytest

from benchmarks.report.beside_page import beside_page, figures_of
from benchmarks.report.document import PAGES, write_page
from benchmarks.report.rows import Row, Section, exactly

ROWS = (
    Row("a_over_b", "a over b (tuned)", "", exactly(1.0159), at_most=1.1),
    Row("r4_fixed-191-382", "back inside", "s", exactly(130.0)),
)


def page(tmp_path: Path, rows: tuple[Row, ...] = ROWS) -> None:
    write_page("some", Section("S", "title", "text", rows).markdown("make some"), tmp_path)


def test_what_a_page_was_written_with_is_read_again(tmp_path: Path) -> None:
    page(tmp_path)
    assert figures_of((tmp_path / "some.md").read_text()) == {
        "a_over_b": "1.016",
        "r4_fixed-191-382": "130 s",
    }
    told = beside_page("some", ROWS, tmp_path)
    assert told == "2 of 2 figures are those of docs/results/some.md."


def test_figures_that_differ_or_are_not_there_are_shown(tmp_path: Path) -> None:
    page(tmp_path)
    changed = Row("r4_fixed-191-382", "back inside", "s", exactly(120.0))
    other = Row("new", "new", "", exactly(2.0))
    told = beside_page("some", (ROWS[0], changed, other), tmp_path)
    assert told.startswith("1 of 3 figures")
    assert "| r4_fixed-191-382 | 130 s | 120 s |" in told and "| new |  | 2 |" in told


def test_figures_that_a_whole_run_does_not_give_any_more_are_shown(tmp_path: Path) -> None:
    page(tmp_path)
    assert beside_page("some", ROWS[:1], tmp_path).endswith("some.md.")
    told = beside_page("some", ROWS[:1], tmp_path, whole=True)
    assert "| r4_fixed-191-382 | 130 s |  |" in told and "a_over_b" not in told


@pytest.mark.parametrize("name", ["rivals", "elastic", "g3"])
def test_every_figure_of_a_shipped_page_is_found(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    assert len(figures_of(text)) == len(re.findall(r"^\|[^|]*`\) \|", text, re.MULTILINE)) > 5


def test_no_page_has_no_figures(tmp_path: Path) -> None:
    assert beside_page("none", ROWS, tmp_path).startswith("0 of 2 figures")
