"""Paced delivery: the least lead that counts, the account of late tokens, the steady pace."""

from dataclasses import replace

import numpy as np
import pytest

from controller.models.pace import AT_ONCE, DeadlineSlack, ErrorBudget, Pace, Remaining
from controller.models.survival import EDGES, Exposure, Survival, length_bin

D = 0.05


def leads(*pairs: tuple[float, int]) -> DeadlineSlack:
    slack_s, generated = zip(*pairs, strict=True)
    return DeadlineSlack(np.array(slack_s), np.array(generated, dtype=float))


def remaining(tokens: float, first: float = 100.0) -> Remaining:
    """Each has so many tokens left, whatever its age."""
    return Remaining(np.array([0.0, 1e6]), np.array([tokens, tokens]), lambda share: first)


def exact(ttft_s: float = 0.0, percentile: float = 90.0) -> Pace:
    """With steps that were predicted to the last microsecond, so that there is no margin."""
    pace = Pace(D, percentile, ttft_s)
    for _ in range(3000):
        pace.observe(1, 0, 0.0)
    assert pace.margin_s == pytest.approx(0, abs=1e-9)
    pace.budget.tokens = 0.0
    return pace


@pytest.mark.parametrize(
    ("some", "extra_s"),
    [
        ([(0.4, 3), (1.0, 9)], 0.4 * AT_ONCE),  # half of the least lead beyond D
        ([(-0.02, 3), (1.0, 9)], -0.02),  # late by less than half of D: made good at once
        ([(-0.03, 3), (0.4, 9)], 0.4 * AT_ONCE),  # who is further behind is lost
        ([(-3.0, 3), (-1.0, 9)], -0.025),  # all are: steps are as short as may be
    ],
)
def test_a_step_by_the_leads_alone(some: list[tuple[float, int]], extra_s: float) -> None:
    assert exact().extra_s(leads(*some), None) == pytest.approx(extra_s)


def test_the_account_leaves_out_as_many_as_it_covers_with_all_their_tokens() -> None:
    pace, some = exact(), leads((0.6, 5), (0.2, 5), (0.4, 5))
    for tokens, least_s in ((0.0, 0.2), (59.9, 0.2), (60.0, 0.4), (119.0, 0.4), (120.0, 0.6)):
        pace.budget.tokens = tokens
        assert pace.extra_s(some, remaining(60)) == pytest.approx(least_s * AT_ONCE), tokens


def test_the_account_takes_in_a_share_of_what_the_percentile_allows_and_pays_for_late_ones():
    pace = Pace(D, 90.0)
    before = pace.budget.tokens
    assert before == pytest.approx(0.07 * 1024)
    pace.observe(100, 3, 0.0)
    assert pace.budget.tokens == pytest.approx(before * (1 - 1 / 4096) + 7 - 3)


def test_half_of_the_ttft_lasts_for_the_tokens_that_are_to_be_in_time() -> None:
    pace = exact(ttft_s=2.0)
    blocked = leads((0.0, 10), (1.0, 10))
    for tokens in (1.0, 1e6):
        pace.budget.tokens = tokens
        assert pace.extra_s(blocked, remaining(1e9, first=100)) == pytest.approx(1.0 / 100)


@pytest.mark.parametrize(("ttft_s", "tokens"), [(2.0, 0.0), (2.0, -1.0), (2.0, -1e6), (0.0, 1.0)])
def test_in_debt_or_without_a_ttft_there_is_no_steady_pace(ttft_s: float, tokens: float) -> None:
    pace = exact(ttft_s=ttft_s)
    pace.budget.tokens = tokens
    behind = leads((-0.2 * D, 10), (1.0, 10))
    assert pace.extra_s(behind, remaining(1e9, first=100)) == pytest.approx(-0.2 * D)


def test_late_tokens_are_given_once_the_first_of_the_queue_has_waited_for_half_of_the_ttft():
    pace, some = exact(ttft_s=4.0), leads((0.6, 5), (0.2, 5))
    pace.budget.tokens = 60.0
    for waiting_s, least_s in ((0.0, 0.2), (1.99, 0.2), (2.0, 0.6), (9.0, 0.6)):
        found = pace.extra_s(replace(some, waiting_s=waiting_s), remaining(60, first=1e9))
        assert found == pytest.approx(least_s * AT_ONCE), waiting_s
    # Nor is there a steady pace before.
    assert pace.extra_s(replace(some, waiting_s=1.0), remaining(60, first=4.0)) == 0.1
    assert pace.extra_s(replace(some, waiting_s=3.0), remaining(60, first=4.0)) == 0.5
    # Without a time to first token there is nothing to wait for.
    pace = exact()
    pace.budget.tokens = 60.0
    found = pace.extra_s(replace(some, waiting_s=0.0), remaining(60))
    assert found == pytest.approx(0.6 * AT_ONCE)


def test_a_steady_pace_is_for_the_tokens_that_leave_the_accounts_share_behind() -> None:
    pace, asked = exact(ttft_s=2.0), []

    def beyond(share: float) -> float:
        asked.append(share)
        return 0.2  # all answers have one token, nearly

    pace.budget.tokens = 1.0
    none = Remaining(np.array([0.0, 1e6]), np.array([1e9, 1e9]), beyond)
    assert pace.extra_s(leads((0.0, 10)), none) == pytest.approx(1.0)
    assert asked == [pytest.approx(0.07)]


def test_late_tokens_widen_the_margin_and_their_absence_narrows_it() -> None:
    pace = Pace(D, 99.0)
    assert pace.margin_s == pytest.approx(3 * 0.02 * D)
    pace.observe(10, 10, 0.02 * D)
    assert pace.margin_s == pytest.approx((3 + 0.2 * (1 - 0.007)) * 0.02 * D)
    wide = pace.margin_s
    pace.observe(10, 0, 0.02 * D)
    assert pace.margin_s == pytest.approx(wide - 0.2 * 0.007 * 0.02 * D)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_pause_and_a_step_that_ends_far_too_early_count_as_one_d(sign: int) -> None:
    far, near = Pace(D, 99.0), Pace(D, 99.0)
    far.observe(10, 0, sign * 30.0)
    near.observe(10, 0, sign * D)
    assert far.margin_s == near.margin_s


def test_where_all_answers_are_alike_what_is_left_is_the_rest() -> None:
    counts = [0.0] * len(EDGES)
    counts[length_bin(50)] = 1e6  # lengths of one token a bin up to 50
    remaining = Survival(Exposure.of_finished(counts)).remaining
    x, tokens = remaining.generated, remaining.tokens
    left = dict(zip(x.tolist(), tokens.tolist(), strict=True))
    width = EDGES[length_bin(50) + 1] - EDGES[length_bin(50)]
    assert left[0.0] == pytest.approx(50, abs=width)
    assert left[20.0] == pytest.approx(30, abs=width)


def test_of_equal_answers_the_last_tenth_of_the_tokens_comes_in_their_last_tenth() -> None:
    counts = [0.0] * len(EDGES)
    counts[length_bin(1000)] = 300
    found = Survival(Exposure.of_finished(counts)).length_beyond(0.1)
    assert found == pytest.approx(900, rel=0.03)


def test_a_pause_owes_no_more_than_the_income_of_a_thousand_steps() -> None:
    budget = ErrorBudget(99.0)
    for _ in range(300):
        budget.observe(256, 256)
    assert budget.tokens == pytest.approx(-0.007 * 1024 * 256)
    budget.observe(0, 0)  # a step without decodes owes as one of a single one
    assert budget.tokens == pytest.approx(-0.007 * 1024)


def test_the_account_pays_for_what_the_requests_with_the_least_leads_have_left() -> None:
    pace, some = exact(), leads((0.6, 0), (0.2, 90), (0.4, 0))
    by_age = Remaining(np.array([0.0, 100.0]), np.array([100.0, 0.0]), lambda share: 1e9)
    for tokens, least_s in ((9.9, 0.2), (10.1, 0.4), (109.0, 0.4), (111.0, 0.6)):
        pace.budget.tokens = tokens
        assert pace.extra_s(some, by_age) == pytest.approx(least_s / 2), tokens


def test_the_margin_is_twelve_spreads_at_most() -> None:
    pace = Pace(D, 99.0)
    for _ in range(100):
        pace.observe(10, 10, 0.02 * D)
    assert pace.margin_s == pytest.approx(12 * 0.02 * D)


def test_the_spread_is_that_of_the_last_fifty_steps() -> None:
    pace = Pace(D, 99.0)
    before = pace.margin_s
    pace.observe(10, 0, 0.2 * D)
    variance = (0.02 * D) ** 2
    variance += 0.02 * ((0.2 * D) ** 2 - variance)
    assert pace.margin_s == pytest.approx((3 - 0.2 * 0.007) * variance**0.5)
    assert pace.margin_s > 1.5 * before
