"""How many replicas where many requests are late."""

import pytest

from tests.unit.serve_app.scaling.test_decide import one, reading, scaler


@pytest.mark.parametrize(("late", "wanted"), [(0.05, 6), (0.2, 9)])
def test_more_are_asked_for_where_many_are_late_at_a_load_that_is_uneven(
    late: float, wanted: int
) -> None:
    """An hour of a little noise, then 80 requests/s instead of 40 in one look of six."""
    decides, found = scaler(start_s=100.0), []
    for k in range(370):
        per_s = 40.0 + 6.0 * ((k * 7919) % 11 - 5) / 5
        if k >= 360:
            per_s = 80.0 if k % 6 == 0 else 32.0
        counts = {"first_tokens": 400.0 * k, "late_first_tokens": 400.0 * late * max(k - 360, 0)}
        each = [one(per_s / 6, name=n, **counts) for n in range(6)]
        found.append(decides.decide(reading(*each, now_s=10.0 * k)).desired)
    assert found[359] == 6 and found[-1] == wanted


def test_who_is_late_counts_at_the_look_that_sees_it() -> None:
    decides, found = scaler(start_s=100.0), []
    for k in range(362):
        per_s = 80.0 if k == 360 else 40.0 + 6.0 * ((k * 7919) % 11 - 5) / 5
        counts = {"first_tokens": 400.0 * k, "late_first_tokens": 3600.0 if k == 361 else 0.0}
        each = [one(per_s / 6, name=n, **counts) for n in range(6)]
        found.append(decides.decide(reading(*each, now_s=10.0 * k)).desired)
    assert found[360] == 6 < found[361]
