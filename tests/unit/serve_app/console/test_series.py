"""One replica over time."""

from typing import Any

from controller.config import Sla
from controller.records import ReplicaReport
from serve_app.console.series import Series, attained
from tests.builders import histogram_of, report

SLA = Sla(itl_ms=50, ttft_ms=1000)


def at(seq: int, **changes: Any) -> ReplicaReport:
    return report(seq=seq, **changes)


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
