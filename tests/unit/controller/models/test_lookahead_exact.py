"""The forecast of a batch against sums over its requests one by one, constants written out."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from controller.models.lookahead import (
    Forecast,
    Outlook,
    age_row,
    forecast,
    forecast_leading,
    horizons,
)
from controller.models.requests import Requests, requests_of
from controller.models.survival import BINS, EDGES, Exposure, Survival, length_bin

NAMES = ("alive", "mean", "chance", "error", "worst", "reads")


def survival_of(lengths: Sequence[int]) -> Survival:
    return Survival(
        Exposure.of_finished(np.bincount([length_bin(x) for x in lengths], minlength=BINS))
    )


MIXED = survival_of([*range(1, 400, 3)])
YOUNG = survival_of([30, 40])  # an error so large that it is cut off

# prompt, computed, outputs, the most it may generate, tokens it shares
REQUESTS = [
    (100, 100, 0, 5000, 0),
    (100, 164, 64, 5000, 48),
    (300, 120, 0, 90, 0),
    (20, 75, 55, 60, 16),
    (50, 251, 201, 5000, 0),
]


def requests(rows: Sequence[tuple[int, int, int, int, int]]) -> Requests:
    prompts, computed, outputs, most, shared = zip(*rows, strict=True)
    return requests_of(computed, prompts, outputs, most, shared)


def middle(outputs: int) -> int:
    """The age that stands for all of its bin."""
    if not outputs:
        return 0
    k = bisect_right(EDGES, outputs) - 1
    return (EDGES[k] + EDGES[k + 1] - 1) // 2 if k + 1 < BINS else EDGES[k]


def one_by_one(
    rows: Sequence[tuple[int, int, int, int, int]],
    survival: Survival,
    ahead: Sequence[int],
    block: int,
    frac: float,
) -> dict[str, list[float]]:
    s, variance = survival.by_token(6000)
    sums: dict[str, list[float]] = {name: [] for name in NAMES}
    for h in ahead:
        here = dict.fromkeys(NAMES, 0.0)
        for prompt, _, outputs, most, shared in rows:
            if h >= most - outputs:
                continue
            age = middle(outputs)
            then = min(age + h, len(s) - 1)
            q = s[then] / s[age]
            qe = min(q * math.sqrt(max(variance[then] - variance[age], 0.0)), 1 - q)
            holds = frac * (prompt + outputs - shared) + block + h
            here["alive"] += q
            here["mean"] += holds * q
            here["chance"] += holds**2 * q * (1 - q)
            here["error"] += holds * qe
            here["worst"] += holds
            here["reads"] += holds * q + shared * q
        for name in NAMES:
            sums[name].append(here[name])
    return sums


def alike(found: Forecast, expected: dict[str, list[float]], row: int | None = None) -> None:
    for name in NAMES:
        values = getattr(found, name)
        values = values if row is None else values[row]
        assert values == pytest.approx(expected[name], rel=1e-9, abs=1e-9), name


@pytest.mark.parametrize("survival", [MIXED, YOUNG])
@pytest.mark.parametrize(("block", "frac"), [(16, 1.0), (0, 0.25)])
@pytest.mark.parametrize(
    "which", [[0], [2], [1], [0, 4], [0, 1, 2, 3, 4], [2, 3], [4, 1, 0], [0, 1, 1, 1]]
)
def test_a_forecast_is_the_sum_over_requests(
    survival: Survival, block: int, frac: float, which: list[int]
) -> None:
    rows = [REQUESTS[k] for k in which]
    outlook = Outlook(survival, 250)
    expected = one_by_one(rows, survival, outlook.ahead.tolist(), block, frac)
    alike(forecast(requests(rows), outlook, block_tokens=block, frac=frac), expected)


def test_a_request_that_may_generate_as_much_as_the_longest_is_gone_at_the_last_horizon() -> None:
    outlook = Outlook(MIXED, 250)
    rows = [(100, 100, 0, outlook.longest, 0)]
    found = forecast(requests(rows), outlook, block_tokens=16)
    assert found.alive[-1] == 0
    alike(found, one_by_one(rows, MIXED, outlook.ahead.tolist(), 16, 1.0))


@pytest.mark.parametrize("survival", [MIXED, YOUNG])
@pytest.mark.parametrize("which", [[0, 2, 4], [1, 0, 3, 2, 4]])
def test_a_forecast_of_the_first_ones_is_that_of_each_beginning(
    survival: Survival, which: list[int]
) -> None:
    rows = [REQUESTS[k] for k in which]
    outlook = Outlook(survival, 250)
    found = forecast_leading(requests(rows), outlook, block_tokens=16, frac=0.5)
    assert found.mean.shape == (len(rows), len(outlook.ahead))
    for n in range(len(rows)):
        ahead = outlook.ahead.tolist()
        alike(found, one_by_one(rows[: n + 1], survival, ahead, 16, 0.5), row=n)


def test_nothing_is_overwritten_by_what_is_asked_later() -> None:
    first = Outlook(MIXED, 250)
    tables = [first.q.copy(), first.variable.copy(), first.qe.copy()]
    asked = [
        forecast_leading(requests(REQUESTS[:2]), first, block_tokens=16),
        forecast(requests(REQUESTS), first, block_tokens=16),
    ]
    kept = [[getattr(found, name).copy() for name in NAMES] for found in asked]
    Outlook(YOUNG, 200)
    for seen in (first, Outlook(MIXED, 200)):
        forecast_leading(requests(REQUESTS), seen, block_tokens=16)
        forecast(requests(REQUESTS[1:]), seen, block_tokens=16)
    for table, was in zip((first.q, first.variable, first.qe), tables, strict=True):
        assert np.array_equal(table, was)
    for found, were in zip(asked, kept, strict=True):
        for name, was in zip(NAMES, were, strict=True):
            assert np.array_equal(getattr(found, name), was), name


def test_without_shared_prefixes_a_step_reads_what_is_held() -> None:
    rows = [row for row in REQUESTS if not row[4]]
    outlook = Outlook(MIXED, 250)
    for found in (
        forecast(requests(rows), outlook, block_tokens=16),
        forecast_leading(requests(rows), outlook, block_tokens=16),
    ):
        assert found.reads == pytest.approx(found.mean)


def test_sums_of_two_forecasts_add_up() -> None:
    outlook = Outlook(MIXED, 250)
    one, other = (
        forecast(requests(rows), outlook, block_tokens=16) for rows in (REQUESTS[:2], REQUESTS[2:])
    )
    both = forecast(requests(REQUESTS), outlook, block_tokens=16)
    for name in NAMES:
        assert getattr(one.plus(other), name) == pytest.approx(getattr(both, name)), name


def flat(**sums: float) -> Forecast:
    values = {"alive": 0.0, "mean": 0.0, "chance": 0.0, "error": 0.0, "worst": 1e9, "reads": 0.0}
    return Forecast(**{name: np.array([x]) for name, x in {**values, **sums}.items()})


def test_the_upper_bound_is_mean_and_theta_deviations_and_six_tenths_of_the_error() -> None:
    seen = flat(mean=1000.0, chance=400.0, error=50.0)
    assert seen.upper(2.0) == pytest.approx(1000 + 2 * 20 + 0.6 * 50)
    assert seen.upper(0.0) == pytest.approx(1030)
    assert replace(seen, worst=np.array([1005.0])).upper(2.0) == pytest.approx(1005)


def test_a_prefix_that_four_share_is_held_while_one_of_them_is_left() -> None:
    # Each is left with probability 0.3: 1 - 0.7^4 of 100 tokens.
    seen = flat(mean=50.0, worst=500.0, reads=50.0 + 0.3 * 400).with_prefixes(100.0, 400)
    assert seen.mean == pytest.approx(50 + 100 * (1 - 0.7**4))
    assert seen.worst == pytest.approx(600)
    assert seen.reads == pytest.approx(170)


def test_rounding_takes_no_prefix_out_of_its_range() -> None:
    assert flat(reads=401.0).with_prefixes(100.0, 400).mean == pytest.approx(100)
    assert flat(mean=1.0).with_prefixes(100.0, 400).mean == pytest.approx(1)


def points(longest: int) -> list[int]:
    """64 of them, or 4 tokens and a fifth of the way apart at most, but a token at least."""
    found, at = [], 1.0
    while at < longest:
        found.append(int(at))
        at += max(1.0, min(longest / 64, 4 + at / 5))
    return [*found, longest]


@pytest.mark.parametrize("longest", [1, 2, 3, 63, 65, 200, 1000, 20_000])
def test_horizons_are_64_in_a_length_or_a_fifth_of_the_way_apart(longest: int) -> None:
    assert horizons(longest).tolist() == points(longest)


def test_horizons_of_short_answers_are_every_token() -> None:
    assert horizons(5).tolist() == [1, 2, 3, 4, 5]
    assert horizons(128).tolist() == [*range(1, 128, 2), 128]
    assert horizons(10_000).tolist()[:5] == [1, 5, 10, 16, 23]


def test_ages_have_a_row_for_each_bin_and_one_for_a_request_without_a_token() -> None:
    assert age_row(np.array([0, 1, 2, 50, 51, 52, 53, 54])).tolist() == [
        0,
        1,
        2,
        50,
        50,
        51,
        51,
        52,
    ]
    ages = Outlook(MIXED, 60).ages.tolist()
    assert ages == [0, *(middle(edge) for edge in EDGES if edge <= 60)]
    assert ages[49:52] == [49, 50, 52]


@pytest.mark.parametrize("oldest", [0, 1, 2, 3, 49, 50, 51, 52, 53, 250, 3000])
def test_an_outlook_knows_the_ages_that_it_has_rows_for(oldest: int) -> None:
    outlook = Outlook(MIXED, oldest)
    for tokens in range(max(0, oldest - 3), oldest + 200):
        row = int(age_row(np.array([tokens]))[0])
        assert outlook.knows(tokens) == (row < len(outlook.ages)), tokens
    assert outlook.knows(oldest)


def test_the_tables_of_an_outlook_are_q_and_its_variance_and_its_error() -> None:
    for survival in (MIXED, YOUNG):
        outlook = Outlook(survival, 100)
        s, variance = survival.by_token(6000)
        last = int(outlook.ages[-1]) + survival.longest
        for row, age in enumerate(outlook.ages.tolist()):
            for k, h in enumerate(outlook.ahead.tolist()):
                then = min(age + h, last)
                q = s[then] / s[age]
                e = math.sqrt(max(variance[then] - variance[age], 0.0))
                assert outlook.q[row, k] == pytest.approx(q)
                assert outlook.variable[row, k] == pytest.approx(q * (1 - q), abs=1e-12)
                assert outlook.qe[row, k] == pytest.approx(min(q * e, 1 - q), abs=1e-12)


def test_requests_hold_what_they_were_asked_and_have_generated() -> None:
    batch = requests(REQUESTS)
    assert batch.computed.tolist() == [100, 164, 120, 75, 251]
    assert batch.tokens.tolist() == [100, 164, 300, 75, 251]
    assert batch.outputs.tolist() == [0, 64, 0, 55, 201]
    assert batch.allowed.tolist() == [5000, 4936, 90, 5, 4799]
    assert batch.shared.tolist() == [0, 48, 0, 16, 0]
    assert batch.held == 890
    assert len(batch) == 5
    assert requests_of([1], [1], [0], [9]).shared is None
    assert requests_of([1], [1], [0], [9]).shared_tokens == 0


def test_the_most_they_can_hold_is_what_each_may_generate_up_to_the_longest() -> None:
    batch = requests(REQUESTS)
    assert batch.most(0) == 890 - 64
    assert batch.most(50) == 890 - 64 + 50 + 50 + 50 + 5 + 50
    assert batch.most(10_000) == 890 - 64 + 5000 + 4936 + 90 + 5 + 4799


def test_parts_of_a_batch_keep_what_belongs_together() -> None:
    batch = requests(REQUESTS)
    some = batch.where(np.array([False, True, False, True, False]))
    for name in ("computed", "tokens", "outputs", "allowed", "shared"):
        values = getattr(batch, name).tolist()
        assert getattr(some, name).tolist() == [values[1], values[3]]
        assert getattr(batch.first(2), name).tolist() == values[:2]


def test_bins_and_middles_are_those_of_the_survival_curve() -> None:
    middles = [middle(edge) for edge in EDGES]
    assert all(a < b for a, b in pairwise(middles))
    assert Outlook(MIXED, EDGES[-1]).ages.tolist() == [0, *middles]
