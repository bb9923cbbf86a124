"""Survival of output lengths: Kaplan-Meier with a prior, and its error."""

import functools
import math

import numpy as np
import pytest

from controller.models.arrays import Ints
from controller.models.survival import (
    AGES,
    BINS,
    EDGES,
    TYPICAL,
    Exposure,
    LengthHistory,
    Survival,
    believed,
    length_bin,
    outlived,
)
from tests.builders import outlasting

NOBODY = np.array([], dtype=np.int64)
# The last bin has no end; it is taken as long as the longest answer.
AT = [*(edge - 1 for edge in EDGES), 2 * 131072]


def counts_of(*lengths: int) -> np.ndarray:
    return np.bincount([length_bin(x) for x in lengths], minlength=BINS)


def seen_of(*lengths: int) -> Exposure:
    """What whole answers of these lengths show."""
    return Exposure.of_finished(counts_of(*lengths))


def test_bins_are_a_token_wide_up_to_50_and_3_percent_from_there_on() -> None:
    assert EDGES[:52] == (*range(1, 51), 52, 54)
    assert EDGES[-2] < 131_072 <= EDGES[-1]
    assert EDGES[100] == round(EDGES[99] * 1.03)
    assert len(EDGES) == BINS == len(set(EDGES))
    assert [length_bin(x) for x in (0, 1, 2, 3, 50, 51, 52)] == [0, 0, 1, 2, 49, 49, 50]
    for tokens in (13, 128, 5000, EDGES[-1], 10**7):
        index = length_bin(tokens)
        assert EDGES[index] <= tokens
        assert index == BINS - 1 or tokens < EDGES[index + 1]


def running_on(ended: np.ndarray, *running: int) -> Exposure:
    """With these that have outlived all bins before theirs."""
    whole = Exposure.of_finished(ended)
    return Exposure(whole.ended, whole.at_risk + counts_of(*running)[::-1].cumsum()[::-1])


SEEN = {
    "nothing": Exposure.nothing(),
    "few": seen_of(*[10] * 4, *[100] * 3, 2000),
    "many": running_on(counts_of(*[7] * 60), *[300] * 25),
}
EACH = pytest.mark.parametrize("case", SEEN)


@functools.cache
def by_hand(case: str) -> tuple[list[float], list[float], list[float]]:
    """The believed hazard and the share that ends in each bin, and S where each bin begins."""
    seen = SEEN[case]

    def hazard(scale: float, k: int) -> float:
        return 3 * (math.log1p(AT[k + 1] / (3 * scale)) - math.log1p(AT[k] / (3 * scale)))

    scales, logs = [512 * 2 ** (k / 2) for k in range(-8, 11)], []
    for scale in scales:
        log = -((math.log(scale / 512) / 1.4) ** 2) / 2
        for k in range(BINS):
            log += seen.ended[k] * math.log(1 - math.exp(-hazard(scale, k)))
            log -= max(seen.at_risk[k] - seen.ended[k], 0) * hazard(scale, k)
        logs.append(log)
    weights = np.exp(np.array(logs) - max(logs))
    hazards = [float(weights @ [hazard(s, k) for s in scales] / weights.sum()) for k in range(BINS)]
    shares, survives = [], [1.0]
    for k, h in enumerate(hazards):
        n = seen.at_risk[k] + 2
        shares.append(min((seen.ended[k] + 2 * (1 - math.exp(-h))) / n, 1 - 0.5 / n))
        survives.append(survives[-1] * (1 - shares[-1]))
    return hazards, shares, survives


@EACH
def test_survival_is_the_product_of_those_that_get_through_each_bin(case: str) -> None:
    hazards, shares, survives = by_hand(case)
    survival = Survival(SEEN[case])
    assert believed(SEEN[case]) == pytest.approx(hazards, rel=1e-9)
    assert survival.share == pytest.approx(shares, rel=1e-9)
    for k in (0, 1, 9, 10, 60, 99, 150):
        assert outlasting(survival, AT[k]) == pytest.approx(survives[k], rel=1e-9)
    # Within a bin, as if who ends there did so at an even rate.
    k = length_bin(300)
    frac = (300 - AT[k]) / (AT[k + 1] - AT[k])
    between = survives[k] ** (1 - frac) * survives[k + 1] ** frac
    assert outlasting(survival, 300) == pytest.approx(between, rel=1e-9)
    greenwood = [q / ((n + 2) * (1 - q)) for q, n in zip(shares, SEEN[case].at_risk, strict=True)]
    error = np.interp(300, AGES, survival.error)
    assert error == pytest.approx(sum(greenwood[:k]) + frac * greenwood[k], rel=1e-9)
    assert (outlasting(survival, 0), survival.error[0]) == (1, 0)
    # The longest is where 2 in 100 are left.
    assert survival.longest == AT[next(k for k, s in enumerate(survives) if s <= 0.02)]


def test_the_longest_is_a_token_at_least() -> None:
    every = np.zeros(BINS)
    every[0] = 1e6
    assert Survival(Exposure(every, every)).longest == 1


def test_knowing_nothing_the_typical_length_and_what_lasts_lasts() -> None:
    nothing = Survival(Exposure.nothing())
    median = next(x for x in range(1, 4000) if outlasting(nothing, x) < 0.5)
    assert TYPICAL / 3 < median < TYPICAL
    # Who got to twice the median is more likely to go on as long again than one that begins.
    further = outlasting(nothing, 3 * median) / outlasting(nothing, 2 * median)
    assert further > outlasting(nothing, median)


def updated(history: LengthHistory, finished: list[int], aborted: list[int], outputs: Ints) -> None:
    for tokens in finished:
        history.finished(tokens)
    for tokens in aborted:
        history.aborted(tokens)
    history.update(outputs)


def test_a_steady_batch_does_not_make_answers_seem_longer() -> None:
    # Exponential answers, 150 always running: exposures count once, whenever they were seen.
    rng = np.random.default_rng(3)
    lengths, said = rng.geometric(1 / 100, 150), np.zeros(150, dtype=np.int64)
    history, ended = LengthHistory(), list[int]()
    for step in range(2000):
        said += 1
        done = said >= lengths
        ended += said[done].tolist()
        lengths[done], said[done] = rng.geometric(1 / 100, done.sum()), 0
        if step % 10 == 9:
            updated(history, ended, [], said)
            ended = []
    survival = Survival(history.seen)
    assert outlasting(survival, 100) == pytest.approx(np.exp(-1), abs=0.04)
    assert outlasting(survival, 200) == pytest.approx(np.exp(-2), abs=0.03)


def test_a_request_of_so_many_tokens_is_past_the_bins_that_end_before() -> None:
    # The bin of 50 holds 51 as well.
    for tokens, bins in ((0, 0), (1, 1), (49, 49), (50, 49), (51, 50), (52, 50), (53, 51)):
        past = outlived(np.array([tokens]))
        assert past.tolist() == [1.0] * bins + [0.0] * (BINS - bins), tokens
    assert outlived(np.array([10**7])).tolist() == [1.0] * (BINS - 1) + [0.0]
    assert outlived(np.array([1, 2])).tolist()[:3] == [2, 1, 0]
    assert outlived(NOBODY).tolist() == [0] * BINS


def test_whole_answers_were_at_risk_in_every_bin_up_to_their_end() -> None:
    seen = seen_of(1, 1, 3)
    assert seen.ended.tolist()[:4] == [2, 0, 1, 0]
    assert seen.at_risk.tolist()[:4] == [3, 1, 1, 0]


def test_exposures_add_up_with_weights() -> None:
    one = Exposure(np.full(BINS, 1.0), np.full(BINS, 2.0))
    both = one.plus(one.times(3.0), 0.5)
    assert (both.ended[0], both.at_risk[0]) == (2.5, 5.0)
    assert (one.plus(one).ended[5], one.plus(one).at_risk[5]) == (2.0, 4.0)


def test_what_was_seen_fades_by_1_over_e_in_500_ends() -> None:
    history = LengthHistory()
    updated(history, [10] * 100, [], NOBODY)
    updated(history, [20] * 250, [], NOBODY)
    faded = math.exp(-0.5)
    assert history.seen.ended[length_bin(10)] == pytest.approx(100 * faded)
    assert history.seen.ended[length_bin(20)] == 250
    assert history.seen.at_risk[0] == pytest.approx(100 * faded + 250)


def test_who_runs_counts_once_for_each_bin_it_gets_through() -> None:
    history = LengthHistory()
    updated(history, [], [], np.array([3, 3]))
    assert history.seen.at_risk.tolist()[:5] == [2, 2, 2, 0, 0]
    updated(history, [], [], np.array([5, 3]))
    assert history.seen.at_risk.tolist()[:7] == [2, 2, 2, 1, 1, 0, 0]
    # One ends at 6: it got through the bins before it already. The other was aborted at 4.
    updated(history, [6], [4], NOBODY)
    assert history.seen.at_risk.tolist()[:7] == pytest.approx(
        [2 * math.exp(-1 / 500)] * 3 + [math.exp(-1 / 500) + 1] + [math.exp(-1 / 500)] + [1, 0]
    )
    assert history.seen.ended.tolist()[4:7] == [0, 1, 0]


def test_who_ends_in_a_bin_was_at_risk_in_it_whatever_else_went() -> None:
    history = LengthHistory()
    updated(history, [], [], np.array([100] * 5))
    updated(history, [2], [], NOBODY)  # four are out of sight
    assert history.seen.at_risk[1] == pytest.approx(5 * math.exp(-1 / 500) + 1)
    assert history.seen.at_risk[length_bin(60)] == pytest.approx(5 * math.exp(-1 / 500))
