"""What clients saw, in numbers."""

import numpy as np
import pytest

from benchmarks.live.client_view import Seen, of_answers, together
from controller.config import Sla
from serve_app.demo.client import Answer, Ask

SLA = Sla(itl_ms=50, ttft_ms=5000)


def answer(ttft_s: float | None, *gaps_s: float) -> Answer:
    return Answer(200, "", len(gaps_s) + 1, ttft_s, gaps_s, 0.0)


def asked(*at_s: float) -> list[Ask]:
    return [Ask([3, 4], 4, at) for at in at_s]


def test_a_slowed_servers_times_are_brought_back() -> None:
    seen = of_answers(asked(0, 8), [answer(4, 1, 1), answer(8, 2, 2, 2)], time_scale=4)
    assert seen.arrival_s.tolist() == [0, 2]
    assert seen.ttft_s.tolist() == [1, 2]
    assert seen.tpot_s.tolist() == [0.25, 0.5]
    assert seen.gap_end_s.tolist() == [1.25, 1.5, 4.5, 5.0, 5.5]


def test_the_later_half_is_by_arrivals_and_leaves_out_what_came_after_the_last() -> None:
    seen = of_answers(asked(0, 5, 10), [answer(1, 1, 5, 5)] * 3).later_half()
    assert seen.arrival_s.tolist() == [5, 10]
    assert seen.gap_end_s.tolist() == [7, 7]  # of the first two; at 12 and 17 nobody came


def test_inside_asks_for_both_the_mean_gap_and_the_first_token() -> None:
    answers = [answer(1, 0.04), answer(6, 0.04), answer(1, 0.06), answer(None)]
    assert of_answers(asked(0, 0, 0, 0), answers).inside(SLA) == 0.25


@pytest.mark.parametrize(
    ("ttft_s", "gap_s", "holds"), [(1, 0.05, True), (3, 0.05, False), (1, 0.06, False)]
)
def test_a_rate_holds_by_p99_and_by_the_median_wait(
    ttft_s: float, gap_s: float, holds: bool
) -> None:
    answers = [answer(ttft_s, *[gap_s] * 5)] * 20
    assert of_answers(asked(*range(20)), answers).holds(SLA) is holds


def test_replicas_are_put_together() -> None:
    one = of_answers(asked(0, 1), [answer(1, 0.1)] * 2)
    both = together([one, one])
    assert isinstance(both, Seen)
    assert len(both.arrival_s) == 4
    assert np.isclose(both.p99_itl_ms, one.p99_itl_ms)
