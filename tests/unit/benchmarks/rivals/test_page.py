"""docs/results/rivals.md: one section a ground, each written by the run that measures it."""

from pathlib import Path

from benchmarks.report.bootstrap import Estimate
from benchmarks.report.rows import Row, Section
from benchmarks.rivals.page import with_section, write


def test_a_section_replaces_its_own_and_leaves_the_others() -> None:
    page = with_section(with_section("# head\n", "R1", "old"), "R4", "other \\1")
    page = with_section(page, "R1", "new")
    assert "old" not in page
    assert page.index("new") < page.index("other \\1")
    assert page.count("<!-- R1 -->") == 1


def test_a_page_names_what_is_left_out_and_shows_a_picture(tmp_path: Path) -> None:
    rows = (
        Row("r1_tuned", "over the best", "ratio", Estimate(1.02, 0.98, 1.1), at_least=0.99),
        Row("r1_sarathi", "over sarathi", "ratio", Estimate(1.2, 1.2, 1.2)),
    )
    write(Section("R1", "capacity", "How.", rows), "make rivals", tmp_path)
    write(Section("R1", "capacity", "How.", rows), "make rivals", tmp_path)
    page = (tmp_path / "rivals.md").read_text()
    assert page.startswith("# ") and page.count("## R1: capacity") == 1
    assert "SABER" in page
    assert "![capacity](rivals-r1.png)" in page
    assert (tmp_path / "rivals-r1.png").stat().st_size > 1000
