"""Survival of output lengths, number by number, with the constants written out."""

import functools
import math

import numpy as np
import pytest

from controller.models.shift_alarm import ShiftAlarm
from controller.models.survival import (
    BINS,
    EDGES,
    Exposure,
    LengthHistory,
    OutputCounts,
    Survival,
    believed,
    length_bin,
    outlived,
)
from tests.builders import outlasting

NOBODY = np.array([], dtype=np.int64)
# The last bin has no end; it is taken as long as the longest answer.
AT = [*(edge - 1 for edge in EDGES), 2 * 131072]


def ended_in(**counts: int) -> np.ndarray:
    """Counts per bin: t10=4 is four in the bin of 10 tokens."""
    ended = np.zeros(BINS)
    for name, count in counts.items():
        ended[length_bin(int(name[1:]))] += count
    return ended


SEEN = [
    (np.zeros(BINS), np.zeros(BINS)),
    (ended_in(t10=4, t100=3, t2000=1), ended_in(t10=4, t100=3, t2000=1)[::-1].cumsum()[::-1]),
    (ended_in(t7=60), ended_in(t7=60) + ended_in(t300=25)[::-1].cumsum()[::-1]),
]
EACH = pytest.mark.parametrize("case", range(len(SEEN)))


@functools.cache
def by_hand(case: int) -> tuple[list[float], list[float], list[float]]:
    """Of each bin the believed hazard and the share that ends; and S where each bin begins."""
    ended, at_risk = SEEN[case]
    scales = [512 * 2 ** (k / 2) for k in range(-8, 11)]

    def hazard(scale: float, k: int) -> float:
        return 3 * (math.log1p(AT[k + 1] / (3 * scale)) - math.log1p(AT[k] / (3 * scale)))

    weights = []
    for scale in scales:
        log = -((math.log(scale / 512) / 1.4) ** 2) / 2
        for k in range(BINS):
            log += ended[k] * math.log(1 - math.exp(-hazard(scale, k)))
            log -= max(at_risk[k] - ended[k], 0) * hazard(scale, k)
        weights.append(log)
    most = max(weights)
    weights = [math.exp(w - most) for w in weights]
    hazards = [
        sum(w * hazard(s, k) for w, s in zip(weights, scales, strict=True)) / sum(weights)
        for k in range(BINS)
    ]
    shares, survives = [], [1.0]
    for k, h in enumerate(hazards):
        n = at_risk[k] + 2
        shares.append(min((ended[k] + 2 * (1 - math.exp(-h))) / n, 1 - 0.5 / n))
        survives.append(survives[-1] * (1 - shares[-1]))
    return hazards, shares, survives


def test_bins_are_a_token_wide_up_to_50_and_3_percent_from_there_on() -> None:
    assert EDGES[:52] == (*range(1, 51), 52, 54)
    assert EDGES[-2] < 131_072 <= EDGES[-1]
    assert EDGES[100] == round(EDGES[99] * 1.03)
    assert len(EDGES) == BINS == len(set(EDGES))


def test_a_bin_holds_what_is_from_its_edge_on() -> None:
    assert [length_bin(x) for x in (0, 1, 2, 3, 50, 51, 52)] == [0, 0, 1, 2, 49, 49, 50]
    assert length_bin(10**9) == BINS - 1


@EACH
def test_the_hazard_that_is_believed_is_that_of_19_scales_weighed_by_what_was_seen(
    case: int,
) -> None:
    hazards, _, _ = by_hand(case)
    assert believed(Exposure(*SEEN[case])) == pytest.approx(hazards, rel=1e-9)


@EACH
def test_survival_is_the_product_of_those_that_get_through_each_bin(case: int) -> None:
    _, shares, survives = by_hand(case)
    survival = Survival(Exposure(*SEEN[case]))
    assert survival.share == pytest.approx(shares, rel=1e-9)
    for k in (0, 1, 9, 10, 60, 99, 150):
        assert outlasting(survival, AT[k]) == pytest.approx(survives[k], rel=1e-9)
    # Within a bin, as if who ends there did so at an even rate.
    k = length_bin(300)
    frac = (300 - AT[k]) / (AT[k + 1] - AT[k])
    between = survives[k] ** (1 - frac) * survives[k + 1] ** frac
    assert outlasting(survival, 300) == pytest.approx(between, rel=1e-9)
    s, error = survival.by_token(300)
    assert len(s) == len(error) == 301
    assert s[300] == pytest.approx(between, rel=1e-9)
    assert s[0] == 1
    greenwood = [q / ((n + 2) * (1 - q)) for q, n in zip(shares, SEEN[case][1], strict=True)]
    expected = sum(greenwood[:k]) + frac * greenwood[k]
    assert error[300] == pytest.approx(expected, rel=1e-9)
    assert error[0] == 0


@EACH
def test_the_longest_is_where_2_in_100_are_left(case: int) -> None:
    _, _, survives = by_hand(case)
    first = next(k for k, s in enumerate(survives) if s <= 0.02)
    assert Survival(Exposure(*SEEN[case])).longest == AT[first]


def test_the_longest_is_a_token_at_least() -> None:
    every = np.zeros(BINS)
    every[0] = 1e6
    assert Survival(Exposure(every, every)).longest == 1


def test_a_request_of_so_many_tokens_is_past_the_bins_that_end_before() -> None:
    # One token: past the first bin. 50: through half of that of 50, which holds 51 as well.
    for tokens, bins in ((0, 0), (1, 1), (49, 49), (50, 49.5), (51, 50), (52, 50.5), (53, 51)):
        past = outlived(np.array([tokens]))
        part = [bins % 1] if bins % 1 else []
        assert past.tolist() == [1.0] * int(bins) + part + [0.0] * (BINS - math.ceil(bins)), tokens
    assert outlived(np.array([10**7])).tolist() == [1.0] * BINS
    assert outlived(np.array([1, 2])).tolist()[:3] == [2, 1, 0]
    assert outlived(NOBODY).tolist() == [0] * BINS


def test_whole_answers_were_at_risk_in_every_bin_up_to_their_end() -> None:
    seen = Exposure.of_finished(ended_in(t1=2, t3=1).tolist())
    assert seen.ended.tolist()[:4] == [2, 0, 1, 0]
    assert seen.at_risk.tolist()[:4] == [3, 1, 1, 0]


def test_exposures_add_up_with_weights() -> None:
    one = Exposure(np.full(BINS, 1.0), np.full(BINS, 2.0))
    both = one.plus(one.times(3.0), 0.5)
    assert (both.ended[0], both.at_risk[0]) == (2.5, 5.0)
    assert (one.plus(one).ended[5], one.plus(one).at_risk[5]) == (2.0, 4.0)


def test_what_was_seen_fades_by_1_over_e_in_500_ends() -> None:
    history = LengthHistory()
    history.update([10] * 100, [], NOBODY, None)
    assert history.ends == 100
    history.update([20] * 250, [], NOBODY, None)
    faded = math.exp(-0.5)
    assert history.seen.ended[length_bin(10)] == pytest.approx(100 * faded)
    assert history.seen.ended[length_bin(20)] == 250
    assert history.seen.at_risk[0] == pytest.approx(100 * faded + 250)
    assert history.ends == pytest.approx(100 * faded + 250)


def test_who_runs_counts_once_for_each_bin_it_gets_through() -> None:
    history = LengthHistory()
    history.update([], [], np.array([3, 3]), None)
    assert history.seen.at_risk.tolist()[:5] == [2, 2, 2, 0, 0]
    history.update([], [], np.array([5, 3]), None)
    assert history.seen.at_risk.tolist()[:7] == [2, 2, 2, 1, 1, 0, 0]
    # One ends at 6: it got through the bins before it already. The other was aborted at 4.
    history.update([6], [4], NOBODY, None)
    assert history.seen.at_risk.tolist()[:7] == pytest.approx(
        [2 * math.exp(-1 / 500)] * 3 + [math.exp(-1 / 500) + 1] + [math.exp(-1 / 500)] + [1, 0]
    )
    assert history.seen.ended.tolist()[4:7] == [0, 1, 0]


def test_who_ends_in_a_bin_was_at_risk_in_it_whatever_else_went() -> None:
    history = LengthHistory()
    history.update([], [], np.array([100] * 5), None)
    history.update([2], [], NOBODY, None)  # four are out of sight
    assert history.seen.at_risk[1] == pytest.approx(5 * math.exp(-1 / 500) + 1)
    assert history.seen.at_risk[length_bin(60)] == pytest.approx(5 * math.exp(-1 / 500))


def test_the_alarm_adds_up_how_much_likelier_twice_as_often_is_and_half_as_often() -> None:
    alarm = ShiftAlarm()
    assert alarm.level == 0
    assert not alarm.add(5, 1)
    assert alarm.level == pytest.approx(5 * math.log(2) - 1)
    assert not alarm.add(0, 4)  # less 4; and for half as often, 4 / 2 from zero
    assert alarm.level == pytest.approx(2.0)
    assert not alarm.add(1, 2)
    assert alarm.level == pytest.approx(2.0 - math.log(2) + 1)


def test_the_alarm_rings_at_7_and_begins_anew() -> None:
    alarm = ShiftAlarm()
    assert not alarm.add(0, 13.99)
    assert alarm.level == pytest.approx(6.995)
    assert alarm.add(0, 0.01)
    assert alarm.level == 0
    assert not alarm.add(10, 0)
    assert alarm.add(0.1, 0)
    assert alarm.level == 0


def expecting(per_bin: float) -> Survival:
    """Of those who get into a bin this share ends, in every bin."""
    survival = Survival(Exposure.nothing())
    survival.share = np.full(BINS, per_bin)
    return survival


@pytest.mark.parametrize(("before", "drops"), [(63, False), (64, False), (65, True)])
def test_the_alarm_drops_nothing_where_64_ends_or_fewer_are_known(before: int, drops: bool) -> None:
    history = LengthHistory()
    history.update([30] * before, [], NOBODY, None)
    history.update([], [], NOBODY, expecting(0))  # nothing speaks for a change
    # 20 of them get through 28 bins each, of which each should end 1 in 40: 14 ends, and none came.
    rang = history.update([], [], np.full(20, 28), expecting(1 / 40))
    assert rang is drops
    assert history.ends == (0 if drops else before)
    assert history.seen.at_risk[0] == 20 + (0 if drops else before)


def test_what_came_since_nothing_spoke_for_a_change_is_kept() -> None:
    history = LengthHistory()
    history.update([30] * 100, [], NOBODY, None)
    assert not history.update([3], [], NOBODY, expecting(1 / 3))  # as expected: not kept
    assert not history.update([], [], np.full(10, 10), expecting(1 / 10))
    assert history.update([], [], np.full(10, 16), expecting(1 / 10))
    assert history.ends == 0
    assert history.seen.at_risk.tolist()[:17] == [10] * 16 + [0]


def test_500_answers_are_remembered() -> None:
    counter = OutputCounts()
    for _ in range(501):
        counter.add(7)
    assert len(counter) == 500
    assert counter.counts[6] == 500
    assert counter.counts[5] == counter.counts[7] == 0


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5])
def test_no_token_is_taken_to_come_after_the_longest_that_was_seen(share: float) -> None:
    # Ten that run have 50 tokens, and nobody has ended: all of them get there.
    history = LengthHistory()
    history.update([], [], np.full(10, 49), None)
    assert Survival(history.seen).length_beyond(share) == pytest.approx(49 * (1 - share), abs=2)
