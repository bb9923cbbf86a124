"""What of a report goes to Prometheus, number by number."""

from typing import Any

from controller.models.histogram import lower_edge_s
from controller.records import BoundSteps
from replicas.server.metric_values import EDGES, StallCounter, gauges, totals
from tests.builders import batching, histogram_of, report

CONFIG = batching(sla={"itl_ms": 50, "percentile": 95}, max_running={"min": 3})


def of(values: Any) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for metric, labels, value in values:
        assert len(labels) == len(metric.labels)
        assert labels not in found.setdefault(metric.name, {})
        found[metric.name][labels] = value
    return found


def test_what_is_now() -> None:
    known = of(
        gauges(
            report(
                max_running=40,
                token_budget=300,
                running=12,
                waiting=5,
                kv_used_tokens=5000,
                reason="sla",
                mode="fallback",
                enforced=False,
                capacity_per_s=2.5,
                arrival_rate_per_s=1.5,
                sla_out_of_reach=True,
                itl_frac=0.9,
                late_anyway=0.026,
            ),
            CONFIG,
        )
    )
    plain = {name: values[()] for name, values in known.items() if () in values}
    assert plain == {
        "brimful_max_running": 40,
        "brimful_min_running": 3,
        "brimful_token_budget": 300,
        "brimful_running": 12,
        "brimful_waiting": 5,
        "brimful_kv_usage_ratio": 0.25,
        "brimful_capacity_requests_per_second": 2.5,
        "brimful_arrival_requests_per_second": 1.5,
        "brimful_sla_out_of_reach": 1,
        "brimful_sla_target_ratio": 0.95,
        "brimful_enforced": 0,
        "brimful_config_refused": 0,
        "brimful_sla_held_ratio": 0.9,
        "brimful_late_anyway_ratio": 0.026,
        "brimful_report_age_seconds": 0,
    }
    reasons = known["brimful_limit_reason"]
    assert (len(reasons), sum(reasons.values()), reasons["sla",]) == (6, 1, 1)
    modes = known["brimful_control_mode"]
    assert (len(modes), sum(modes.values()), modes["fallback",]) == (3, 1, 1)
    assert known["brimful_sla_seconds"] == {("itl",): 0.05}


def test_stalls_are_counted_by_the_sla_that_held_when_they_came() -> None:
    strict, loose, none = (batching(sla={"itl_ms": ms}).sla for ms in (50, 500, None))
    counter, gaps = StallCounter(), [0.02] * 900 + [3.0]
    assert of(counter.totals(report(itl=histogram_of(gaps)), loose)) == {
        "brimful_stalls_total": {(): 0}
    }
    gaps += [3.0, 3.0]
    assert of(counter.totals(report(itl=histogram_of(gaps)), strict)) == {
        "brimful_stalls_total": {(): 2}
    }
    gaps += [3.0]
    assert of(counter.totals(report(itl=histogram_of(gaps)), none)) == {}
    gaps += [30.0]
    assert of(counter.totals(report(itl=histogram_of(gaps)), loose)) == {
        "brimful_stalls_total": {(): 3}
    }


def test_what_was_counted() -> None:
    known = of(
        totals(
            report(
                itl=histogram_of([0.02] * 90 + [0.2] * 10),
                ttft=histogram_of([0.5, 2.0]),
                late_itl=10,
                late_ttft=1,
                arrivals=9,
                finished=7,
                preemptions=3,
                own_errors=2,
                busy_s=12.5,
                bound_steps=BoundSteps(1, 2, 3, 4, 5),
            )
        )
    )
    plain = {name: values[()] for name, values in known.items() if () in values}
    assert plain == {
        "brimful_tokens_total": 100,
        "brimful_late_tokens_total": 10,
        "brimful_first_tokens_total": 2,
        "brimful_late_first_tokens_total": 1,
        "brimful_arrivals_total": 9,
        "brimful_finished_total": 7,
        "brimful_preemptions_total": 3,
        "brimful_own_errors_total": 2,
        "brimful_busy_seconds_total": 12.5,
    }
    steps = {labels[0]: count for labels, count in known["brimful_steps_total"].items()}
    assert steps == {"memory": 1, "sla": 2, "bound": 3, "load": 4, "pushed": 5}


def test_buckets_are_cumulative_and_exact_at_their_edges() -> None:
    inside = [0.0005, 0.02, 0.2, 99.0]
    buckets = of(totals(report(itl=histogram_of(inside))))["brimful_itl_seconds_bucket_total"]
    assert [le for (le,) in buckets][-1] == "+Inf"
    counts = list(buckets.values())
    assert counts == sorted(counts)
    for edge in EDGES:
        le = f"{lower_edge_s(edge):.6g}"
        assert buckets[le,] == sum(value < lower_edge_s(edge) for value in inside)
    assert buckets["+Inf",] == 4
    assert {float(le) for (le,) in buckets} >= {0.001, 0.01, 0.1, 1.0, 10.0}
