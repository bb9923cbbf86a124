"""The page and the last line, from what was replayed."""

from dataclasses import replace
from pathlib import Path

from benchmarks.contests.tuning import Setting
from benchmarks.disturbed import page
from benchmarks.disturbed.best_static import entry_of
from benchmarks.disturbed.bound import Bound
from benchmarks.disturbed.compared import Compared, Side, overall
from benchmarks.disturbed.replays import Figures
from benchmarks.disturbed.rows import DISTURBED, LOADS, Row
from benchmarks.disturbed.search import Best

STATIC = Figures(0.5, 0.0, 0.5, 200.0, 48.0, 0, 60.0, 20)
ADAPTIVE = Figures(1.0, 0.005, 0.4, 190.0, 96.0, 2, 1200.0, 20)
BOUND = Bound(8.0, 0.033, 0.029, 177.0, 0.29, 0.1, 0.09)


def compared(row: Row, ttft_bound_s: float = 0.09) -> Compared:
    return Compared(
        row,
        Setting(80, 118),
        Side((STATIC, STATIC)),
        Side((ADAPTIVE, replace(ADAPTIVE, j=0.25))),
        (replace(BOUND, ttft_s=ttft_bound_s),) * 2,
    )


ROWS = [compared(Row(load, disturbed)) for load in LOADS[:2] for disturbed in DISTURBED[:2]]
ENTRIES = [entry_of(one.row, Best(one.setting, 0.5, 55), "abc") for one in ROWS]


def test_ratios_are_geometric_means_over_seeds() -> None:
    row = ROWS[0].to_json()
    assert row == {
        "id": "257-62@4 nothing",
        "j_over_static": 1.0,
        "tokens_over_static": 0.95,
        "p999_over_static": 2.0,
        "ttft_over_static": 0.8,
        "ttft_bound_s": 0.09,
        "stalls": 4,
        "stalls_static": 0,
    }
    assert overall(ROWS)["worst_j_over_static"] == 1.0


def test_what_is_below_the_bound_is_named() -> None:
    one = compared(ROWS[0].row, ttft_bound_s=0.45)
    assert one.below_bound(0.01) == ["adaptive on 257-62@4 nothing"] * 2
    assert one.below_bound(0.001) == []
    assert "adaptive on 257-62@4 nothing" in page.text([one], ENTRIES[:1], (101, 102))


def test_the_page_and_its_picture_are_written(tmp_path: Path) -> None:
    page.write(ROWS, ENTRIES, (101, 102), tmp_path)
    text = (tmp_path / "disturbed.md").read_text()
    assert "static (80, 118) | 0.5 |" in text
    assert "Pollaczek-Khinchine" in text
    assert text.endswith("Command: `make disturbed`\n")
    assert (tmp_path / "disturbed.png").stat().st_size > 10_000
