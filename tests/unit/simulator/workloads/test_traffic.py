"""Requests drawn from workloads: lengths, correlation, gaps, rates, phases."""

import numpy as np
import pytest

from simulator.workloads.catalog import load_workload
from simulator.workloads.lengths import Exponential
from simulator.workloads.requests import Request, length_stats
from simulator.workloads.traffic import (
    Drawn,
    Phase,
    Recorded,
    Workload,
    draw_phases,
    draw_requests,
    draw_traffic,
)

MANY = 20_000


def lengths(requests: tuple[Request, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Input and output tokens of all."""
    return (
        np.array([r.input_tokens for r in requests]),
        np.array([r.output_tokens for r in requests]),
    )


def gaps(requests: tuple[Request, ...]) -> np.ndarray:
    """Seconds between arrivals."""
    return np.diff([r.arrival_s for r in requests])


@pytest.mark.parametrize("name", ["azure-2023-conversation", "mooncake-conversation"])
def test_drawn_lengths_have_the_quantiles_of_the_trace(name: str) -> None:
    workload = load_workload(name)
    assert isinstance(workload.source, Drawn)
    drawn = lengths(draw_requests(workload, MANY, 5.0, None, seed=1))
    for values, marginal in zip(
        drawn, (workload.source.input, workload.source.output), strict=True
    ):
        for percent in (10, 25, 50, 75, 90):
            # The values at neighbouring percents bound what a draw of this size may give.
            low, high = marginal.lengths(np.array([percent - 2, percent + 2]) / 100)
            assert low <= np.percentile(values, percent) <= high


@pytest.mark.parametrize("rho", [-0.8, 0.0, 0.073, 0.6])
def test_drawn_lengths_have_the_rank_correlation_asked_for(rho: float) -> None:
    workload = Workload("w", Drawn(Exponential(5000), Exponential(5000), rho))
    ranks = [
        np.argsort(np.argsort(v)) for v in lengths(draw_requests(workload, MANY, 1.0, None, 2))
    ]
    assert np.corrcoef(ranks)[0, 1] == pytest.approx(rho, abs=0.02)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_the_rate_and_the_burstiness_asked_for(cv: float) -> None:
    found = gaps(draw_requests(load_workload("fixed:1,1"), MANY, 4.0, cv, seed=3))
    assert found.mean() == pytest.approx(1 / 4, rel=0.01)
    assert found.std() / found.mean() == pytest.approx(cv, rel=0.06, abs=1e-6)


def test_a_trace_comes_at_its_own_rate_and_burstiness() -> None:
    found = gaps(draw_requests(load_workload("mooncake-conversation"), MANY, "own", None, seed=4))
    assert found.mean() == pytest.approx(1 / 3.401, rel=0.01)
    assert found.std() / found.mean() == pytest.approx(3.03, rel=0.06)


def test_exponential_lengths_have_their_mean_and_their_cut() -> None:
    u = (np.arange(MANY) + 0.5) / MANY
    assert Exponential(62).lengths(u).mean() == pytest.approx(62, rel=0.002)
    assert Exponential(128, cut=32).lengths(u).max() == 32
    assert Exponential(1).lengths(u).tolist() == [1] * MANY


def test_another_rate_moves_the_same_requests() -> None:
    traffic = draw_traffic(load_workload("exponential:50,50"), 100, None, seed=5)
    slow, fast = traffic.at(1.0), traffic.at(10.0)
    assert [r.input_tokens for r in slow] == [r.input_tokens for r in fast]
    assert [r.arrival_s for r in slow] == pytest.approx([10 * r.arrival_s for r in fast])


def test_a_seed_gives_the_same_requests_again_and_another_does_not() -> None:
    one, same, other = (
        draw_requests(load_workload("azure-2023-conversation"), 50, 2.0, None, seed=s)
        for s in (7, 7, 8)
    )
    assert one == same
    assert one != other


def test_recorded_requests_come_as_recorded_or_at_another_rate() -> None:
    recorded = (Request(10.0, 5, 6), Request(11.0, 7, 8), Request(14.0, 9, 10))
    workload = Workload("w", Recorded(recorded))
    assert draw_requests(workload, None, "own", None, 0, "context") == recorded
    twice = draw_requests(workload, 6, 2.0, None, seed=0)
    assert [r.input_tokens for r in twice] == [5, 7, 9] * 2
    assert gaps(twice) == pytest.approx([0.25, 0.75, 0.5, 0.25, 0.75])


def test_phases_come_one_after_the_other() -> None:
    phases = (
        Phase(load_workload("fixed:10,10"), 2.0, 50.0),
        Phase(load_workload("fixed:20,20"), 8.0, 25.0),
    )
    requests = draw_phases(phases, None, seed=0)
    assert [r.input_tokens for r in requests] == [10] * 100 + [20] * 200
    assert requests[99].arrival_s <= 50 < requests[100].arrival_s
    assert requests[-1].arrival_s == pytest.approx(75)


def test_length_stats_weigh_a_request_by_its_decodes_and_a_prompt_by_its_tokens() -> None:
    stats = length_stats([Request(0, 100, 3), Request(0, 300, 2)])
    assert (stats.mean_input, stats.mean_output) == (200, 2.5)
    assert stats.mean_held == pytest.approx((101 + 102 + 301) / 3)
    assert stats.mean_context == pytest.approx((100**2 + 300**2) / 2 / 400)
    assert length_stats([Request(0, 100, 1)]).mean_held == 100
