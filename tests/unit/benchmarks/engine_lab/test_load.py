"""The lab's requests: in proportion to the rate, the same for the same seed."""

import pytest

from benchmarks.engine_lab.load import (
    LONG,
    STREAM,
    STREAMS_PER_BURST,
    requests_of,
    requests_to_record,
)


def test_long_prompts_are_in_proportion_to_streams_at_any_rate() -> None:
    for rate in (0.2, 3.0):
        asked = requests_of(rate, 2000 / rate, seed=1)
        streams = sum(r.input_tokens == STREAM[0] for r in asked)
        longs = sum(r.input_tokens == LONG[0] for r in asked)
        assert streams == pytest.approx(2000, rel=0.1)
        assert longs / 2000 == pytest.approx(2 / STREAMS_PER_BURST, rel=0.01)


def test_another_rate_is_another_clock() -> None:
    slow, fast = requests_of(0.5, 100, seed=3), requests_of(1.0, 50, seed=3)
    assert [2 * r.arrival_s for r in fast] == pytest.approx([r.arrival_s for r in slow])
    assert requests_of(0.5, 100, seed=4) != slow


def test_they_come_in_order_and_end_where_they_may() -> None:
    for asked in (requests_of(0.7, 90, seed=2), requests_to_record(90)):
        arrivals = [r.arrival_s for r in asked]
        assert arrivals == sorted(arrivals)
        assert arrivals[-1] <= 90
        assert all(r.max_tokens == r.output_tokens for r in asked)
