"""Lengths of requests: moments of ended ones, survival of running ones."""

import functools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.models.arrays import Ints
from controller.models.lengths import LengthMoments
from controller.models.live_lengths import LiveLengths
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
)
from tests.builders import exposure, moments_of, outlasting


def drawn(n: int = 500) -> list[tuple[int, int]]:
    rng = np.random.default_rng(7)
    inputs = rng.integers(1, 400, n)
    outputs = inputs // 2 + rng.geometric(1 / 80, n)
    return [(int(i), int(o)) for i, o in zip(inputs, outputs, strict=True)]


def test_moments_are_numpys() -> None:
    lengths = drawn()
    inputs, outputs = np.array(lengths).T
    moments = moments_of(lengths)
    assert moments.n == 500
    assert moments.mean_input == pytest.approx(inputs.mean())
    assert moments.mean_output == pytest.approx(outputs.mean())
    assert moments.mean_total == pytest.approx(inputs.mean() + outputs.mean())
    assert moments.variance_total == pytest.approx(inputs.var() + outputs.var())


def test_fixed_lengths_are_held_with_half_their_output() -> None:
    fixed = moments_of([(128, 128)] * 5)
    assert fixed.variance_total == 0
    assert fixed.mean_held == 192
    assert fixed.variance_held == pytest.approx(128**2 / 12)  # by age alone
    assert fixed.mean_total / fixed.mean_held == pytest.approx(4 / 3)  # eq. 8 is a third above


def test_the_held_mean_is_what_a_running_request_holds_on_average_over_its_steps() -> None:
    lengths = drawn(50)
    held = [i + k + 0.5 for i, o in lengths for k in range(o)]  # seen in the middle of each step
    assert moments_of(lengths).mean_held == pytest.approx(np.mean(held))


def test_requests_without_output_hold_their_input() -> None:
    assert moments_of([(40, 0), (60, 0)]).mean_held == 50


def test_what_running_requests_hold_varies_by_their_lengths_and_by_their_age() -> None:
    lengths = drawn()
    inputs, outputs = np.array(lengths).T
    spread = np.var(inputs + outputs / 2)  # at half of its output each
    assert moments_of(lengths).variance_held == pytest.approx(
        spread + (outputs.astype(float) ** 2).mean() / 12
    )


NOBODY = np.array([], dtype=np.int64)
# The last bin has no end; it is taken as long as the longest answer.
AT = [*(edge - 1 for edge in EDGES), 2 * 131072]


ENDED = exposure([7] * 60)
SEEN = {
    "nothing": Exposure.nothing(),
    "few": exposure([*[10] * 4, *[100] * 3, 2000]),
    # With these that have outlived all bins before theirs.
    "many": Exposure(ENDED.ended, ENDED.at_risk + exposure([300] * 25).at_risk),
}


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


@pytest.mark.parametrize("case", SEEN)
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


STEPS, BATCH, MEAN = 400, 60, 450
NOTHING = LengthMoments()


def corrected(
    live: LiveLengths, ended: LengthMoments, running: Ints, prompts: LengthMoments = NOTHING
) -> LengthMoments:
    """With these output tokens of the requests that run."""
    live.update(running)
    return live.corrected(ended, prompts)


def young(lengths: Ints) -> tuple[LengthMoments, LengthMoments]:
    """A full batch from the start on, a token a step: moments of the ended, and corrected."""
    live, ended = LiveLengths(), []
    queue = iter(lengths.tolist())
    running = [[next(queue), 0] for _ in range(BATCH)]
    for step in range(1, STEPS + 1):
        for one in running:
            one[1] += 1
            if one[1] >= one[0]:
                ended.append((100, one[0]))
                live.finished(one[0])
                one[:] = [next(queue), 0]
        if step % 10 == 0:
            known = moments_of(ended)
            found = corrected(live, known, np.array([g for _, g in running]))
    return known, found


def test_answers_are_as_long_as_they_will_be_and_not_as_those_that_ended() -> None:
    ended, found = [], []
    for seed in range(20):
        known, live = young(np.random.default_rng(seed).geometric(1 / MEAN, 2000))
        ended.append(known.mean_output)
        found.append(live.mean_output)
        assert (live.n, live.input) == (known.n, known.input)
    assert np.mean(ended) < 0.5 * MEAN
    # No request is past 400 tokens yet, and none is expected past 800: 17% of such a law.
    assert np.mean(found) == pytest.approx(MEAN * (1 - np.exp(-800 / MEAN)), rel=0.06)


def test_answers_of_one_length_stay_so_when_the_first_few_have_ended() -> None:
    lengths = np.full(2000, 390)
    lengths[5:BATCH] = 395  # most of the first batch is about to end, nearly
    known, live = young(lengths)
    assert live.mean_output == pytest.approx(known.mean_output, rel=0.06)


def test_where_few_were_seen_they_end_as_often_per_token_as_all() -> None:
    live = LiveLengths()
    live.finished(100)
    # One end in 100 tokens, and as much belief as of one request, up to 200 tokens: between a
    # length that is always the same (10,000, the second moment) and an exponential law (20,000).
    found = corrected(live, moments_of([(1, 100)]), NOBODY)
    assert (found.mean_output, found.output_sq) == (99, 13_119)


def test_nobody_is_taken_to_go_on_for_longer_than_twice_what_any_did() -> None:
    live = LiveLengths()
    live.finished(10)
    found = corrected(live, moments_of([(1, 10)]), np.array([990] * 127))
    assert 990 < found.mean_output < 2 * 1030  # a bin is 3% wide


@example([([(0, 1)], [], [1, 1])])  # 2.6 tokens and 8.4, rounded
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), max_size=5),
            st.lists(st.integers(0, 10**6), max_size=3),
            st.lists(st.integers(0, 10**6), max_size=5),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_whatever_comes_moments_are_of_real_lengths(looks):
    live, ended = LiveLengths(), []
    for finished, aborted, running in looks:
        ended += finished
        for _, tokens in finished:
            live.finished(tokens)
        for tokens in aborted:
            live.aborted(tokens)
        known = moments_of(ended)
        found = corrected(live, known, np.array(running, dtype=np.int64))
        assert found.n == known.n
        assert found.output >= 0
        assert found.output_sq * found.n >= found.output**2 * (1 - 1e-6)
