"""What is believed of Ray Serve's context."""

from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.scaling.reading import Ages, FleetReading, read_fleet

FINE = {"running": 3.0, "waiting": 1.0, "max_running": 8.0, "capacity_per_s": 2.0}


def read(*replicas: dict[str, Any], **context: Any) -> FleetReading:
    by_name: dict[str, dict[int, Any]] = {}
    for index, numbers in enumerate(replicas):
        for name, value in numbers.items():
            by_name.setdefault(name, {})[index] = value
    known = {"current_num_replicas": len(replicas), "aggregated_metrics": by_name}
    return read_fleet(SimpleNamespace(**known | context), Ages())


def test_what_a_replica_says_is_taken() -> None:
    said = {"arrival_rate_per_s": 5.0, "refused_per_s": 9.0}
    (load,) = read(FINE | said).replicas
    assert read(FINE | {"capacity_error_frac": 7.0}).replicas[0].capacity_error_frac == 1.0
    assert (load.running, load.waiting, load.capacity_per_s) == (3.0, 1.0, 2.0)
    assert (load.demand_per_s, load.refused_per_s) == (5.0, 5.0)
    assert (load.capacity_error_frac, load.out_of_reach) == (0.0, False)


LAST = {"demand_per_s": {0: [SimpleNamespace(timestamp=1.0, value=-1.0)]}}


@pytest.mark.parametrize(
    ("replicas", "context", "silent"),
    [
        # An impossible number.
        ([FINE | {"running": -1.0}, FINE], {}, 1),
        ([FINE | {"capacity_per_s": float("nan")}, FINE], {}, 1),
        ([FINE | {"waiting": "many"}, FINE], {}, 1),
        # One that does not say what all say.
        ([{"running": 1.0}, {"waiting": 1.0}, {}, FINE], {}, 3),
        # A last sample that cannot be true.
        ([FINE | {"demand_per_s": 5.0}], {"raw_metrics": LAST}, 1),
    ],
)
def test_a_replica_that_cannot_be_believed_is_silent(replicas, context, silent):
    assert read(*replicas, **context).unreporting == silent


@pytest.mark.parametrize(
    ("said", "out"),
    [
        ({"sla_out_of_reach": 0.49}, False),  # half of the look-back
        ({"sla_out_of_reach": 0.5}, True),
        ({"capacity_per_s": 0.0}, True),
    ],
)
def test_where_an_sla_is_out_of_reach_no_capacity_counts(said, out):
    (load,) = read(FINE | said).replicas
    assert (load.out_of_reach, load.capacity_per_s) == (out, None if out else 2.0)


def test_rates_and_counts_are_taken_as_they_were_said_last() -> None:
    said = FINE | {"arrival_rate_per_s": 5.0, "first_tokens": 80.0, "late_first_tokens": 3.0}
    samples = [SimpleNamespace(timestamp=1.0, value=4.0), SimpleNamespace(timestamp=2.0, value=9.0)]
    raw = {"arrival_rate_per_s": {0: samples}, "running": {0: samples}, "first_tokens": {0: []}}
    (load,) = read(said, raw_metrics=raw).replicas
    assert (load.arrivals_per_s, load.demand_per_s, load.running) == (9.0, 9.0, 3.0)
    assert (load.name, load.first_tokens, load.late_first_tokens) == (0, 80.0, 3.0)
    assert read(FINE).replicas[0].first_tokens is None


def test_bounds_that_contradict_are_the_lower_one() -> None:
    seen = read(capacity_adjusted_min_replicas=4, capacity_adjusted_max_replicas=2)
    assert (seen.minimum, seen.maximum) == (4, 4)


def test_after_a_clock_that_went_back_statistics_grow_old_all_the_same() -> None:
    ages, raw = Ages(), {"running": {"a": [SimpleNamespace(timestamp=5.0)]}}
    old = [ages.old(raw, now_s, 20.0) for now_s in (3600.0, 100.0, 120.0, 121.0)]
    assert old == [set(), set(), set(), {"a"}]


def test_statistics_that_are_pushed_often_may_be_as_old_as_the_usual_ones() -> None:
    config = SimpleNamespace(metrics_interval_s=1.0, look_back_period_s=30.0)
    context = SimpleNamespace(
        current_num_replicas=1,
        aggregated_metrics={name: {0: value} for name, value in FINE.items()},
        raw_metrics={"running": {0: [SimpleNamespace(timestamp=1.0, value=3.0)]}},
        config=config,
    )
    ages, silent = Ages(), []
    for context.current_time in (0.0, 26.0, 27.0):  # two pushes of 10 s, and a fifth of 30 s
        silent.append(read_fleet(context, ages).unreporting)
    assert silent == [0, 0, 1]
