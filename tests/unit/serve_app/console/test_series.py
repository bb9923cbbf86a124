"""One replica over time."""

from typing import Any

import pytest

from controller.config import Sla
from controller.records import ReplicaReport
from serve_app.console.series import COLUMNS, Series, attained, chunk_tokens
from tests.builders import engine, histogram_of, report

SLA = Sla(itl_ms=50, ttft_ms=1000)


def at(seq: int, **changes: Any) -> ReplicaReport:
    return report(seq=seq, **changes)


def test_a_point_has_every_column() -> None:
    series, tokens = Series(), [0.02] * 10
    same = {"token_budget": 300, "decoding": 20, "running": 21, "waiting": 5}
    same |= {"kv_used_tokens": 5000}
    before = {"itl": histogram_of(tokens), "ttft": histogram_of([0.5])}
    series.add(at(1, **same, **before), 64, 1000.0)
    later = histogram_of(tokens + [0.1] * 99 + [1.0] * 2)
    series.add(at(2, **same, itl=later, ttft=histogram_of([0.5, 2.0])), 65, 1001.0)
    first, second = (dict(zip(COLUMNS, point, strict=True)) for point in series.points)
    assert first == {
        "unix_s": 1000.0,
        "cap": 64,
        "chunk_tokens": 280,
        "running": 21,
        "waiting": 5,
        "kv_frac": 0.25,
        "busy_frac": 0.0,
        "itl_p50_ms": None,  # nothing before to count from
        "itl_p99_ms": None,
        "ttft_p50_ms": None,
        "ttft_p99_ms": None,
    }
    assert second["cap"] == 65
    assert second["itl_p50_ms"] == pytest.approx(100, rel=0.06)
    assert second["itl_p99_ms"] == pytest.approx(1000, rel=0.06)
    assert second["ttft_p50_ms"] == second["ttft_p99_ms"] == pytest.approx(2000, rel=0.06)
    assert series.row() == {k: v for k, v in second.items() if k != "unix_s"}


def test_an_engine_that_started_anew_counts_from_its_own_start() -> None:
    series = Series()
    series.add(at(900, itl=histogram_of([0.1] * 100)), 64, 1.0)
    series.add(at(1, itl=histogram_of([0.02] * 3)), 64, 2.0)
    series.add(at(2, itl=histogram_of([0.02] * 4)), 64, 3.0)
    assert series.points[-1][COLUMNS.index("itl_p50_ms")] == pytest.approx(20, rel=0.06)


def test_what_is_inside_the_sla_is_counted_over_the_last_minute_and_exactly() -> None:
    series, reports = Series(), []
    for second in range(100):
        tokens = [0.0499] * (10 * second + 1)
        reports.append(
            at(second + 1, itl=histogram_of(tokens), late_itl=9 if second > 10 else 0, late_ttft=0)
        )
        series.add(reports[-1], 64, float(second))
    # Those of the first seconds were late and are over a minute ago.
    assert attained([series.attained(reports[-1], 99.0)], SLA) == {"itl": 1.0, "ttft": None}
    late = {"itl": histogram_of([0.05] * 1091), "late_itl": 9 + 60, "late_ttft": 1}
    late = at(101, **late, ttft=histogram_of([2.0] * 4))
    series.add(late, 64, 100.0)
    seen = series.attained(late, 100.0)
    assert attained([seen], SLA) == {"itl": round(1 - 60 / 690, 5), "ttft": 0.75}
    assert attained([seen, seen], SLA)["ttft"] == 0.75


def test_a_speculating_decode_takes_several_tokens_of_the_budget() -> None:
    drafting = engine(tokens_per_decode=4)
    assert chunk_tokens(at(1, token_budget=100, decoding=20, engine=drafting)) == 20
    assert chunk_tokens(at(1, token_budget=100, decoding=20, engine=drafting, drafts=30)) == 50
    assert chunk_tokens(at(1, token_budget=10, decoding=20)) == 0
