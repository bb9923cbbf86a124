"""The forecast of a batch, by hand."""

import numpy as np
import pytest

from controller.models.lookahead import (
    LiveRequests,
    Outlook,
    forecast,
    horizons,
    leading,
    live_requests,
)
from controller.models.survival import BINS, OutputCounts, Survival


def outlook(*lengths: int, oldest: int = 400) -> Outlook:
    counter = OutputCounts()
    for length in lengths:
        counter.add(length)
    return Outlook(Survival(counter.counts), oldest)


def batch(*rows: tuple[int, int, int]) -> LiveRequests:
    """(prompt, outputs, most allowed) of each; their prompts are computed."""
    prompts, outputs, most = zip(*rows, strict=True)
    computed = [p + o for p, o in zip(prompts, outputs, strict=True)]
    return live_requests(computed, prompts, outputs, most)


def test_horizons_begin_at_one_and_end_at_the_longest() -> None:
    for longest in (1, 2, 128, 10_000):
        points = horizons(longest)
        assert points[0] == 1
        assert points[-1] == longest
        assert (np.diff(points) >= 0).all()
        assert len(points) <= 60


def test_requests_of_a_known_length_hold_their_tokens_until_then() -> None:
    known = outlook(*[128] * 500)
    seen = forecast(batch((100, 0, 1000), (100, 64, 1000)), known, block_tokens=0)
    at = int(np.searchsorted(known.ahead, 40))
    ahead = known.ahead[at]
    assert seen.alive[at] == pytest.approx(2, abs=0.1)
    assert seen.mean[at] == pytest.approx(264 + 2 * ahead, rel=0.05)
    gone = int(np.searchsorted(known.ahead, 90))
    assert seen.alive[gone] == pytest.approx(1, abs=0.15)  # the older one has ended


def test_nobody_outlives_what_it_may_say() -> None:
    nothing = Outlook(Survival([0] * BINS), 100)
    seen = forecast(batch((10, 0, 5)), nothing, block_tokens=0)
    assert (seen.mean[nothing.ahead >= 5] == 0).all()
    assert (seen.worst[nothing.ahead >= 5] == 0).all()


def test_the_upper_bound_is_never_more_than_all_hold_together() -> None:
    nothing = Outlook(Survival([0] * BINS), 400)
    seen = forecast(batch(*[(50, k, 4000) for k in range(30)]), nothing, block_tokens=16)
    assert (seen.upper(3.0) <= seen.worst + 1e-9).all()
    assert (seen.upper(3.0) >= seen.mean - 1e-9).all()


def test_cumulated_sums_end_in_the_sum_over_all() -> None:
    known = outlook(*range(1, 400))
    rows = batch((50, 3, 900), (70, 0, 900), (20, 80, 900))
    one_by_one = forecast(rows, known, block_tokens=16, cumulated=True)
    whole = forecast(rows, known, block_tokens=16)
    assert one_by_one.mean[-1] == pytest.approx(whole.mean)
    assert one_by_one.mean[0] == pytest.approx(forecast(rows.first(1), known, block_tokens=16).mean)


def test_what_is_shared_is_not_counted_again() -> None:
    known = outlook(*[500] * 300)
    rows = batch((1000, 0, 900))
    alone = forecast(rows, known, block_tokens=0).mean[0]
    shared = forecast(rows, known, block_tokens=0, shared_frac=0.9).mean[0]
    assert alone - shared == pytest.approx(900, rel=0.01)


@pytest.mark.parametrize(
    ("fits", "count"), [([True, True], 2), ([True, False, True], 1), ([False], 0), ([], 0)]
)
def test_only_those_before_the_first_that_does_not_fit_lead(fits: list[bool], count: int) -> None:
    assert leading(np.array(fits, dtype=bool)) == count
