"""The forecast of a batch, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from controller.models.lookahead import POINTS, Outlook, forecast, horizons, leading
from controller.models.requests import Requests, requests_of
from controller.models.survival import BINS, Exposure, Survival, length_bin

NOTHING = Survival(Exposure.nothing())


def outlook(*lengths: int, oldest: int = 400) -> Outlook:
    counts = np.bincount([length_bin(length) for length in lengths], minlength=BINS)
    return Outlook(Survival(Exposure.of_finished(counts)), oldest)


def batch(*rows: tuple[int, int, int]) -> Requests:
    """(prompt, outputs, most allowed) of each; their prompts are computed."""
    prompts, outputs, most = zip(*rows, strict=True)
    computed = [p + o for p, o in zip(prompts, outputs, strict=True)]
    return requests_of(computed, prompts, outputs, most)


def test_horizons_begin_at_one_and_end_at_the_longest() -> None:
    for longest in (1, 2, 128, 10_000):
        points = horizons(longest)
        assert points[0] == 1
        assert points[-1] == longest
        assert (np.diff(points) >= 0).all()
        assert len(points) <= POINTS + 20


def test_requests_of_a_known_length_hold_their_tokens_until_then() -> None:
    known = outlook(*[128] * 500)
    seen = forecast(batch((100, 0, 1000), (100, 64, 1000)), known, block_tokens=0)
    at = int(np.searchsorted(known.ahead, 40))
    ahead = known.ahead[at]
    assert seen.alive[at] == pytest.approx(2, abs=0.1)
    assert seen.mean[at] == pytest.approx(264 + 2 * ahead, rel=0.05)
    gone = int(np.searchsorted(known.ahead, 90))
    assert seen.alive[gone] == pytest.approx(1, abs=0.15)  # the older one has ended


def test_nobody_outlives_what_it_may_generate() -> None:
    nothing = Outlook(NOTHING, 100)
    seen = forecast(batch((10, 0, 5)), nothing, block_tokens=0)
    assert (seen.mean[nothing.ahead >= 5] == 0).all()
    assert (seen.worst[nothing.ahead >= 5] == 0).all()


def test_the_upper_bound_is_never_more_than_all_hold_together() -> None:
    nothing = Outlook(NOTHING, 400)
    seen = forecast(batch(*[(50, k, 4000) for k in range(30)]), nothing, block_tokens=16)
    assert (seen.upper(3.0) <= seen.worst + 1e-9).all()
    assert (seen.upper(3.0) >= seen.mean - 1e-9).all()


def test_what_windows_of_attention_let_go_is_not_counted() -> None:
    known = outlook(*[500] * 300)
    rows = batch((1000, 0, 900))
    whole = forecast(rows, known, block_tokens=0).mean[0]
    window = forecast(rows, known, block_tokens=0, frac=0.1).mean[0]
    assert whole - window == pytest.approx(900, rel=0.01)


def test_a_shared_prefix_is_in_memory_once_and_read_by_each() -> None:
    known = outlook(*[500] * 300)
    alone = batch(*[(1000, 0, 900)] * 5)
    rows = replace(alone, shared=np.array([800] * 5))
    once = forecast(rows, known, block_tokens=0).with_prefixes(800, 5 * 800)
    each = forecast(alone, known, block_tokens=0)
    assert once.mean[0] == pytest.approx(each.mean[0] - 4 * 800, rel=0.01)
    assert once.worst == pytest.approx(each.worst - 4 * 800)
    assert once.reads == pytest.approx(each.reads)


def test_a_shared_prefix_stays_until_the_last_one_has_ended() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.geometric(1 / 100, 20_000)
    known = outlook(*lengths)
    rows = replace(batch(*[(800, 0, 9000)] * 4), shared=np.array([800] * 4))
    seen = forecast(rows, known, block_tokens=0).with_prefixes(800, 4 * 800)
    last = rng.geometric(1 / 100, (20_000, 4)).max(axis=1)
    for at in (20, 30, 40):
        ahead = known.ahead[at]
        by_themselves = ahead * seen.alive[at]
        assert (seen.mean[at] - by_themselves) / 800 == pytest.approx(
            (last > ahead).mean(), abs=0.04
        )


@pytest.mark.parametrize(
    ("fits", "count"), [([True, True], 2), ([True, False, True], 1), ([False], 0), ([], 0)]
)
def test_only_those_before_the_first_that_does_not_fit_lead(fits: list[bool], count: int) -> None:
    assert leading(np.array(fits, dtype=bool)) == count
