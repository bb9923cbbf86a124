"""Figures of a run, by hand."""

import numpy as np
import pytest

from benchmarks.gpu.figures import figures_of
from benchmarks.live.served import Served


def served(gaps: list[tuple[float, float, int]], first_s: list[float]) -> Served:
    """Three requests that arrive at 0, 10 and 12 s; gaps are (length, end, request)."""
    length_s, end_s, request = (np.array(column) for column in zip(*gaps, strict=True))
    none = np.zeros(3)
    arrival_s = np.array([0.0, 10.0, 12.0])
    tokens = np.array([2, 2, 2])
    return Served(arrival_s, np.array(first_s), none, tokens, length_s, end_s, request, 40.0)


GAPS = [(9.0, 9.5, 0), (0.05, 11.0, 1), (0.15, 11.2, 1), (0.05, 14.0, 2), (3.0, 17.0, 2)]


def test_only_requests_after_the_first_seconds_count() -> None:
    found = figures_of(served(GAPS, [0.5, 10.5, 13.5]), 0.1, 99.0, 5.0, 15.0)
    assert found.late_frac == 0.5
    assert found.stalls == 1  # of more than 2 s
    assert found.longest_ms == pytest.approx(3000)
    assert found.itl_ms[0] == pytest.approx(100)
    assert found.ttft_s == pytest.approx((1.0, 1.0, 1.49))
    assert found.j == pytest.approx(50 * 1.0)


def test_tokens_count_by_when_they_came_whoevers_they_are() -> None:
    found = figures_of(served(GAPS, [0.5, 10.5, 13.5]), 0.1, 99.0, 5.0, 15.0)
    assert found.tokens_per_s == pytest.approx(6 / 10)  # one of 0, all of 1, two of 2


def test_within_the_allowed_share_waiting_alone_is_what_it_costs() -> None:
    found = figures_of(served(GAPS, [0.5, 10.5, 13.5]), 0.1, 40.0, 5.0, 15.0)
    assert found.j == pytest.approx(1.0)


def test_a_gap_of_exactly_the_sla_is_in_time() -> None:
    exact = [(0.1, 11.0, 1), (0.1, 14.0, 2)]
    assert figures_of(served(exact, [0.5, 10.5, 13.5]), 0.1, 99.0, 5.0, 15.0).late_frac == 0


def test_a_request_without_a_token_has_no_figures() -> None:
    with pytest.raises(ValueError, match="too few"):
        figures_of(served(GAPS, [0.5, 10.5, np.nan]), 0.1, 99.0, 5.0, 15.0)
    with pytest.raises(ValueError, match="0 requests after 13 s"):
        figures_of(served(GAPS, [0.5, 10.5, 13.5]), 0.1, 99.0, 13.0, 15.0)
