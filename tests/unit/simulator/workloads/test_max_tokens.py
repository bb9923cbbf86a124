"""``max_tokens`` of drawn requests: room above the output, from a stream of its own."""

from collections import Counter

import pytest

from simulator.workloads.catalog import load_workload
from simulator.workloads.max_tokens import SENT, MaxTokens, with_max_tokens
from simulator.workloads.requests import Request
from simulator.workloads.traffic import (
    Recorded,
    Workload,
    draw_requests,
    draw_traffic,
)


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


def test_what_is_sent_says_nothing_of_short_outputs() -> None:
    one, other = allowed([1] * 500, "spread", seed=2), allowed([255] * 500, "spread", seed=2)
    assert one == other
    assert set(one) == set(SENT)


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


def test_lengths_and_arrivals_do_not_depend_on_the_rule() -> None:
    workload = load_workload("azure-2023-conversation")
    bare, spread = (
        draw_requests(workload, 300, 2.0, None, 7, rule) for rule in ("context", "spread")
    )
    drawn = [(r.arrival_s, r.input_tokens, r.output_tokens) for r in spread]
    assert [(r.arrival_s, r.input_tokens, r.output_tokens) for r in bare] == drawn
    # Of the draws before there was a rule, so that figures of a seed stay comparable.
    assert drawn[0] == pytest.approx((0.2835054329686147, 398, 58))
    assert all((r.max_tokens or 0) > r.output_tokens for r in spread)


def test_a_longer_draw_begins_with_the_shorter_one() -> None:
    workload = load_workload("fixed:50,500")
    short, long = (draw_traffic(workload, n, None, 5).requests for n in (100, 1000))
    assert [r.max_tokens for r in short] == [r.max_tokens for r in long[:100]]
