"""The forecast of a batch, held against sums over its requests one by one."""

import math
from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.models.lookahead import (
    Forecast,
    SurvivalTable,
    age_row,
    forecast,
    forecast_leading,
    horizons,
    leading,
)
from controller.models.requests import Requests, requests_of
from controller.models.survival import BINS, EDGES, Exposure, Survival, length_bin
from tests.property.strategies import examples

NAMES = ("alive", "mean", "chance", "error", "worst", "reads")
Row = tuple[int, int, int, int, int]  # prompt, computed, outputs, may generate, shared


def survival_of(lengths: list[int]) -> Survival:
    counts = np.bincount([length_bin(x) for x in lengths], minlength=BINS)
    return Survival(Exposure.of_finished(counts))


MIXED = survival_of([*range(1, 400, 3)])
YOUNG = survival_of([30, 40])  # an error so large that it is cut off
OUTLOOKS = {seen: SurvivalTable(seen, 250) for seen in (MIXED, YOUNG, survival_of([]))}
REQUESTS: list[Row] = [
    (100, 100, 0, 5000, 0),
    (100, 164, 64, 5000, 48),
    (300, 120, 0, 90, 0),
    (20, 75, 55, 60, 16),
    (50, 251, 201, 5000, 0),
]
some_rows = st.lists(
    st.sampled_from(REQUESTS)
    | st.builds(
        lambda prompt, said, more, shared: (
            *(prompt, prompt + said, said, said + more),
            min(shared, prompt),
        ),
        st.integers(1, 2000),
        st.integers(0, 250),
        st.integers(0, 300) | st.just(10**5),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=5,
)


def requests(rows: list[Row]) -> Requests:
    prompts, computed, outputs, most, shared = zip(*rows, strict=True)
    return requests_of(computed, prompts, outputs, most, shared if any(shared) else None)


def middle(outputs: int) -> int:
    """The age that stands for all of its bin."""
    if not outputs:
        return 0
    k = bisect_right(EDGES, outputs) - 1
    return (EDGES[k] + EDGES[k + 1] - 1) // 2 if k + 1 < BINS else EDGES[k]


def one_by_one(
    rows: list[Row], survival: Survival, ahead: list[int], block: int, frac: float
) -> dict[str, list[float]]:
    s, variance = survival.by_token(300 + ahead[-1])
    sums = {name: [0.0] * len(ahead) for name in NAMES}
    for prompt, _, outputs, most, shared in rows:
        age = middle(outputs)
        for k, h in enumerate(ahead):
            if h >= most - outputs:
                continue
            then = min(age + h, len(s) - 1)
            q = s[then] / s[age]
            qe = min(q * math.sqrt(max(variance[then] - variance[age], 0.0)), 1 - q)
            holds = frac * (prompt + outputs - shared) + block + h
            found = q, holds * q, holds**2 * q * (1 - q), holds * qe, holds, (holds + shared) * q
            for name, value in zip(NAMES, found, strict=True):
                sums[name][k] += value
    return sums


def alike(found: Forecast, expected: dict[str, list[float]], row: int | None = None) -> None:
    for name in NAMES:
        values = getattr(found, name)
        values = values if row is None else values[row]
        assert values == pytest.approx(expected[name], rel=1e-9, abs=1e-9), name


@example(MIXED, REQUESTS, 16, 1.0)
@example(YOUNG, REQUESTS[::-1], 0, 0.25)
@example(MIXED, REQUESTS[:1], 16, 1.0)
@examples(0.1)
@given(st.sampled_from(list(OUTLOOKS)), some_rows, st.sampled_from([0, 16]), st.floats(0.1, 1))
def test_a_forecast_is_the_sum_over_requests_and_of_the_first_ones_that_of_each_beginning(
    survival: Survival, rows: list[Row], block: int, frac: float
) -> None:
    survival_table, how = OUTLOOKS[survival], {"block_tokens": block, "frac": frac}
    expected = [
        one_by_one(rows[:n], survival, survival_table.ahead.tolist(), block, frac)
        for n in range(1, len(rows) + 1)
    ]
    first_ones = forecast_leading(requests(rows), survival_table, **how)
    whole = forecast(requests(rows), survival_table, **how)
    assert first_ones.mean.shape == (len(rows), len(survival_table.ahead))
    for n, sums in enumerate(expected):
        alike(first_ones, sums, row=n)
    alike(whole, expected[-1])
    alike(whole.plus(whole), {name: [2 * x for x in expected[-1][name]] for name in NAMES})
    assert (whole.upper(3.0) <= whole.worst + 1e-9).all()
    assert (whole.upper(3.0) >= whole.mean - 1e-9).all()


def test_a_request_that_may_generate_as_much_as_the_longest_is_gone_at_the_last_horizon() -> None:
    survival_table = OUTLOOKS[MIXED]
    rows = [(100, 100, 0, survival_table.longest, 0)]
    found = forecast(requests(rows), survival_table, block_tokens=16)
    assert found.alive[-1] == 0
    alike(found, one_by_one(rows, MIXED, survival_table.ahead.tolist(), 16, 1.0))


def test_nothing_is_overwritten_by_what_is_asked_later() -> None:
    first = SurvivalTable(MIXED, 250)
    asked = [
        forecast_leading(requests(REQUESTS[:2]), first, block_tokens=16),
        forecast(requests(REQUESTS), first, block_tokens=16),
    ]
    kept = [[getattr(found, name).copy() for name in NAMES] for found in asked]
    SurvivalTable(YOUNG, 200)
    for seen in (first, SurvivalTable(MIXED, 200)):
        forecast_leading(requests(REQUESTS), seen, block_tokens=16)
        forecast(requests(REQUESTS[1:]), seen, block_tokens=16)
    for found, were in zip(asked, kept, strict=True):
        for name, was in zip(NAMES, were, strict=True):
            assert np.array_equal(getattr(found, name), was), name


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
    assert (seen.worst, seen.reads) == (pytest.approx(600), pytest.approx(170))
    # Rounding takes none out of its range.
    assert flat(reads=401.0).with_prefixes(100.0, 400).mean == pytest.approx(100)
    assert flat(mean=1.0).with_prefixes(100.0, 400).mean == pytest.approx(1)


@pytest.mark.parametrize(
    ("longest", "begin"),
    [
        (1, [1]),
        (5, [1, 2, 3, 4, 5]),
        (128, [*range(1, 128, 2), 128]),
        (10_000, [1, 5, 10, 16, 23]),
        (20_000, [1, 5, 10, 16, 23]),
    ],
)
def test_horizons_are_64_in_a_length_or_a_fifth_of_the_way_apart(longest, begin):
    points = horizons(longest).tolist()
    assert points[: len(begin)] == begin
    assert (points[0], points[-1]) == (1, longest)
    for one, other in pairwise(points[:-1]):
        assert abs(other - one - max(1.0, min(longest / 64, 4 + one / 5))) <= 1.2


def test_ages_have_a_row_for_each_bin_and_one_for_a_request_without_a_token() -> None:
    tokens = [0, 1, 2, 50, 51, 52, 53, 54]
    assert age_row(np.array(tokens)).tolist() == [0, 1, 2, 50, 50, 51, 51, 52]
    middles = [middle(edge) for edge in EDGES]
    assert all(a < b for a, b in pairwise(middles))
    assert SurvivalTable(MIXED, EDGES[-1]).ages.tolist() == [0, *middles]
    assert SurvivalTable(MIXED, 60).ages.tolist() == [0, *(middle(e) for e in EDGES if e <= 60)]


@pytest.mark.parametrize("oldest", [0, 1, 2, 3, 49, 50, 51, 52, 53, 250, 3000])
def test_an_outlook_knows_the_ages_that_it_has_rows_for(oldest: int) -> None:
    survival_table = SurvivalTable(MIXED, oldest)
    for tokens in range(max(0, oldest - 3), oldest + 200):
        row = int(age_row(np.array([tokens]))[0])
        assert survival_table.knows(tokens) == (row < len(survival_table.ages)), tokens
    assert survival_table.knows(oldest)


def test_requests_hold_what_they_were_asked_and_have_generated() -> None:
    batch = requests(REQUESTS)
    assert batch.tokens.tolist() == [100, 164, 300, 75, 251]
    assert batch.allowed.tolist() == [5000, 4936, 90, 5, 4799]
    assert (batch.held, len(batch)) == (890, 5)
    assert batch.most(50) == 890 - 64 + 50 + 50 + 50 + 5 + 50
    assert batch.most(10_000) == 890 - 64 + 5000 + 4936 + 90 + 5 + 4799
    plain = requests_of([1], [1], [0], [9])
    assert (plain.shared, plain.shared_tokens) == (None, 0)
    some = batch.where(np.array([False, True, False, True, False]))
    for name in ("computed", "tokens", "outputs", "allowed", "shared"):
        values = getattr(batch, name).tolist()
        assert getattr(some, name).tolist() == [values[1], values[3]]
        assert getattr(batch.first(2), name).tolist() == values[:2]


@pytest.mark.parametrize(
    ("fits", "count"), [([True, True], 2), ([True, False, True], 1), ([False], 0), ([], 0)]
)
def test_only_those_before_the_first_that_does_not_fit_lead(fits: list[bool], count: int) -> None:
    assert leading(np.array(fits, dtype=bool)) == count
