"""Figures beside those of a page."""

from pathlib import Path

from benchmarks.report.beside_page import beside_page, figures_of
from benchmarks.report.document import write_page
from benchmarks.report.rows import Row, Section, exactly

ROWS = (
    Row("a_over_b", "a over b (tuned)", "", exactly(1.0159), at_most=1.1),
    Row("back", "back inside", "s", exactly(130.0)),
)


def page(tmp_path: Path, rows: tuple[Row, ...] = ROWS) -> None:
    write_page("some", Section("S", "title", "text", rows).markdown("make some"), tmp_path)


def test_what_a_page_was_written_with_is_read_again(tmp_path: Path) -> None:
    page(tmp_path)
    assert figures_of((tmp_path / "some.md").read_text()) == {"a_over_b": "1.016", "back": "130 s"}
    told = beside_page("some", ROWS, tmp_path)
    assert told == "2 of 2 figures are those of docs/results/some.md."


def test_figures_that_differ_or_are_not_there_are_shown(tmp_path: Path) -> None:
    page(tmp_path)
    changed = Row("back", "back inside", "s", exactly(120.0))
    other = Row("new", "new", "", exactly(2.0))
    told = beside_page("some", (ROWS[0], changed, other), tmp_path)
    assert told.startswith("1 of 3 figures")
    assert "| back | 130 s | 120 s |" in told and "| new |  | 2 |" in told


def test_no_page_has_no_figures(tmp_path: Path) -> None:
    assert beside_page("none", ROWS, tmp_path).startswith("0 of 2 figures")
