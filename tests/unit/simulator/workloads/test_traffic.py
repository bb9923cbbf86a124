"""Requests drawn from workloads: lengths, gaps, phases, ``max_tokens``, conversations."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from controller.errors import ConfigError
from simulator.workloads.catalog import load_workload
from simulator.workloads.conversations import SYSTEM_TOKENS
from simulator.workloads.lengths import Exponential
from simulator.workloads.max_tokens import MaxTokens, with_max_tokens
from simulator.workloads.requests import Request, follow_up, length_stats
from simulator.workloads.traffic import (
    Drawn,
    Phase,
    Recorded,
    Workload,
    draw_phases,
    draw_requests,
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
            # The values at neighbouring percents bound the quantile of a sample of this size.
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


def test_a_seed_gives_the_same_requests_again_and_another_does_not() -> None:
    one, same, other = (
        draw_requests(load_workload("azure-2023-conversation"), 50, 2.0, None, seed=s)
        for s in (7, 7, 8)
    )
    assert one == same
    assert one != other


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


def allowed(outputs: list[int], rule: MaxTokens, seed: int = 0) -> list[int | None]:
    """What clients of requests with these outputs allow."""
    return [r.max_tokens for r in with_max_tokens([Request(0, 9, o) for o in outputs], rule, seed)]


@pytest.mark.parametrize(
    ("output", "may_be"),
    [
        (1, {256, 512, 1024, 2048, 4096}),
        (255, {256, 512, 1024, 2048, 4096}),
        (256, {512, 1024, 2048, 4096}),
        (1500, {2048, 4096}),
        (4095, {4096}),
        (4096, {8192}),
        (8192, {16_384}),
    ],
)
def test_a_spread_is_above_the_output_and_each_value_as_likely(
    output: int, may_be: set[int]
) -> None:
    found = Counter(allowed([output] * 6000, "spread", seed=1))
    assert set(found) == may_be
    assert min(found.values()) > 0.85 * 6000 / len(may_be)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("exact", [128, 4096, 5000]),
        ("context", [None, None, None]),
        (4096, [4096, 4096, 8192]),
        (100, [128 * 2, 8192, 8192]),
    ],
)
def test_rules_without_chance(rule: MaxTokens, expected: list[int | None]) -> None:
    assert allowed([128, 4096, 5000], rule) == expected


@pytest.mark.parametrize("rule", ["spread", "exact", 4096])
def test_a_workloads_own_max_tokens_is_kept(rule: MaxTokens) -> None:
    own, bare = Request(1.0, 5, 6, max_tokens=77, priority=1), Request(2.0, 5, 6)
    for rate in ("own", 3.0):
        drawn = draw_requests(Workload("w", Recorded((own, bare))), 2, rate, None, 0, rule)
        assert (drawn[0].max_tokens, drawn[0].priority) == (77, 1)
        assert drawn[1].max_tokens not in (None, 77)


def test_a_prompt_holds_all_before_it_and_something_new() -> None:
    for first in draw_requests(load_workload("agents:5,80,20,0.1"), 40, 1.0, None, 3):
        assert first.input_tokens > SYSTEM_TOKENS
        turns = [first, *first.then]
        for before, after in pairwise(turns):
            assert after.input_tokens > before.input_tokens + before.output_tokens
            assert (after.conversation, after.prefix) == (before.conversation, before.prefix)
            assert after.max_tokens is not None


def test_what_follows_comes_its_pause_after_the_answer() -> None:
    second, third = Request(0.5, 30, 5), Request(2.0, 50, 5)
    after = follow_up(Request(0.0, 10, 5, then=(second, third)), 4.0)
    assert after is not None
    assert (after.arrival_s, after.input_tokens, after.then) == (4.5, 30, (third,))
    assert follow_up(third, 4.0) is None


@pytest.mark.parametrize("spec", ["agents:1,2,3", "agents:0,400,100,1", "agents:a,1,1,1",
                                  "agents:43,400,100,nan", "agents:43,400,100,-1"])  # fmt: skip
def test_a_wrong_spec_is_named_with_what_is_allowed(spec: str) -> None:
    with pytest.raises(ConfigError, match="agents:TURNS,TOOL,OUT,PAUSE_S"):
        load_workload(spec)
