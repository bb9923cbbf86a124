"""From runs to figures: medians of rounds, ratios paired by round."""

from typing import Any

import pytest

from benchmarks.engine_lab.report import section
from benchmarks.engine_lab.schedule import SIDES, Plan, Row
from benchmarks.engine_lab.tasks import Ground, Limits

GROUND = Ground("tiny", None, 130.0, 120.0, 30.0)


def figures(j: float, p99_ms: float = 100.0, tokens: float = 50.0) -> dict[str, Any]:
    return {
        "late_frac": 0.01,
        "itl_ms": [40.0, p99_ms, 2 * p99_ms],
        "stalls": 0,
        "longest_ms": 3 * p99_ms,
        "ttft_s": [j, j, 2 * j],
        "tokens_per_s": tokens,
        "j": j,
    }


def run(*args: float) -> dict[str, Any]:
    others = {"took_s": 128.0, "hog_frac": 0.0, "waited_frac": 0.02, "stolen_frac": 0.0}
    return {**others, "figures": figures(*args)}


ROW = Row(
    "hog-8",
    0.5,
    0.21,
    Limits(24, 40),
    {
        "off": [run(1, 800), run(2, 900), run(4, 700)],
        "tuned": [run(1), run(1), run(2)],
        "on": [run(2), run(3), run(1)],
    },
    {side: [figures(1, 90, 45)] * 3 for side in SIDES},
)


def test_ratios_are_paired_by_round_and_their_median_counts() -> None:
    rows = {row.id: row for row in section([ROW], GROUND, Plan()).rows}
    j = rows["hog_8_50_j_on_over_tuned"].estimate
    assert (j.value, j.low, j.high, j.runs) == (2.0, 0.5, 3.0, 3)
    assert rows["hog_8_50_p99_on_over_off"].estimate.value == pytest.approx(100 / 800)
    assert rows["hog_8_50_late_on"].estimate.value == pytest.approx(1.0)


def test_the_replay_has_targets() -> None:
    rows = {row.id: row for row in section([ROW], GROUND, Plan()).rows}
    assert rows["hog_8_50_replay_tokens_ratio_tuned"].met is True
    assert rows["hog_8_50_replay_p99_ratio_off"].met is False
    without = Row(ROW.condition, ROW.share, ROW.rate_per_s, ROW.tuned, ROW.runs, {})
    assert not any("replay" in row.id for row in section([without], GROUND, Plan()).rows)


def test_the_page_names_condition_limits_and_what_else_took_the_core() -> None:
    page = section([ROW], GROUND, Plan()).markdown("make bench-cpu")
    assert "static, tuned (24, 40)" in page
    assert "8 ms of 38 taken" in page
    assert "| hog-8, 0.21 | 0.0 | 2.0 | 0.0 |" in page
