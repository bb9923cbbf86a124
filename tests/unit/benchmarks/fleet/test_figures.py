"""The figures of ``make bench-elastic``."""

from benchmarks.fleet.__main__ import rows_of
from simulator.fleet.course import Result


def made(spec: str, hours: float, attainment: float = 0.995) -> Result:
    return Result("day-1", spec.partition(":")[0], spec, attainment, hours, 2.0, None)


def test_hours_are_over_the_oracle_and_the_cheapest_rival_that_keeps_the_sla() -> None:
    found = {
        "oracle": made("oracle", 50.0),
        "brimful": made("brimful", 54.0),
        "ray tuned": made("ray:target_ongoing_requests=9", 60.0),
        "wva tuned": made("wva:kv_threshold=0.1", 40.0, attainment=0.98),
    }
    rows = {row.id: row for row in rows_of("day-1", found)}
    assert rows["elastic_day_1_over_oracle"].estimate.value == 1.08
    assert rows["elastic_day_1_over_rival"].estimate.value == 0.9
    assert rows["elastic_day_1_over_rival"].met is False
    late = rows_of("day-1", {**found, "brimful": made("brimful", 54.0, attainment=0.9)})
    assert [row.id for row in late] == ["elastic_day_1_inside", "elastic_day_1_reversals"]
