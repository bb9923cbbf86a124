"""Laws of the shared models: sums, percentiles, capacities, the paper's equations."""

import math
from statistics import NormalDist

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controller.capacity import capacity_per_s
from controller.models.histogram import PER_DECADE, merge
from controller.models.lengths import LengthRing
from controller.models.memory import exact_batch, theta
from controller.models.step_time import StepModel
from controller.policies.paper import SlaBatching
from controller.records import EngineReport, from_wire, to_wire
from serve_app.scaling.demand import replicas_needed, whole
from tests.builders import histogram_of, moments_of
from tests.property.strategies import lengths, reports

durations_s = st.lists(st.floats(1e-4, 99.0), min_size=1, max_size=200)


def cost_s(most: float) -> st.SearchStrategy[float]:
    """Nothing at all, or at least a picosecond."""
    return st.just(0.0) | st.floats(1e-12, most)


models = st.builds(
    StepModel,
    c0=cost_s(0.1),
    c1=cost_s(0.01),
    c2=cost_s(1e-5),
    c3=cost_s(0.001),
    c4=st.just(0.0),
    sigma_s=st.just(0.0),
)
finished = st.lists(
    st.tuples(st.integers(1, 8000), st.integers(1, 4000)), min_size=1, max_size=20
).map(moments_of)


@given(one=lengths, other=lengths)
def test_moments_add_up_in_any_order_to_those_of_all_requests(one, other):
    a, b = moments_of(one), moments_of(other)
    assert a + b == b + a == moments_of(one + other)


@given(pairs=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=60))
def test_a_ring_is_the_moments_of_its_newest(pairs: list[tuple[int, int]]) -> None:
    ring = LengthRing(size=16)
    for pair in pairs:
        ring.add(*pair)
    assert ring.moments() == moments_of(pairs[-16:])


@given(one=durations_s, other=durations_s)
def test_histograms_merge_to_that_of_all_durations(one: list[float], other: list[float]) -> None:
    merged, whole = merge([histogram_of(one), histogram_of(other)]), histogram_of(one + other)
    assert merged.counts == whole.counts
    assert merged.total_s == pytest.approx(whole.total_s)
    assert whole.since(histogram_of(one)).counts == histogram_of(other).counts


@given(durations=durations_s, percent=st.integers(1, 100))
def test_a_percentile_is_the_true_one_to_half_a_bin(durations: list[float], percent: int) -> None:
    found_s = histogram_of(durations).percentile_s(percent)
    rank = math.ceil(len(durations) * percent / 100)
    exact_s = np.sort(durations)[rank - 1]
    assert found_s is not None
    assert abs(math.log10(found_s / exact_s)) <= 0.5001 / PER_DECADE


@given(model=models, moments=finished, cap=st.integers(1, 1024), itl_s=st.floats(0.001, 1))
def test_the_capacity_is_the_largest_rate_that_batch_and_sla_hold(model, moments, cap, itl_s):
    decode_s = model.c1 + model.c2 * moments.mean_held
    work_s = model.c3 * moments.mean_input + decode_s * moments.mean_output

    def holds(rate_per_s: float, limit_s: float) -> bool:
        """Steps last T = c0 + q T (E[out] (c1 + c2 m) + c3 E[in]); B = q E[out] T run."""
        idle = 1 - rate_per_s * work_s
        if idle <= 0:
            return False
        step_s = model.c0 / idle
        return step_s <= limit_s and rate_per_s * moments.mean_output * step_s <= cap

    for limit_s in (itl_s, math.inf):
        found = capacity_per_s(model, moments, cap, None if limit_s == math.inf else limit_s)
        if not work_s and not model.c0:
            assert found is None
            continue
        assert found is not None
        if limit_s < 1.1 * model.predict_s(1, 0, 0, 0):
            assert found == 0
        else:
            assert holds(found * (1 - 1e-9), limit_s)
            assert not holds(found * (1 + 1e-9), limit_s)


@given(
    arrivals=st.just(0.0) | st.floats(1e-9, 1e4),
    backlog=st.just(0.0) | st.floats(1e-9, 1e5),
    capacity=st.floats(0.01, 1e3),
    drain_s=st.floats(1, 600),
    rho=st.floats(0.1, 1),
)
def test_the_replicas_needed_carry_the_demand_and_one_fewer_would_not(
    arrivals: float, backlog: float, capacity: float, drain_s: float, rho: float
) -> None:
    asked = {"outside": backlog, "drain_s": drain_s, "target_utilization": rho}
    n = whole(replicas_needed(arrivals, capacity, **asked))
    demand, each = arrivals + backlog / drain_s, rho * capacity
    assert n * each >= demand * (1 - 1e-9)
    assert n == 0 or (n - 1) * each < demand * (1 + 1e-9)


@given(report=reports())
def test_any_report_survives_the_wire(report: EngineReport) -> None:
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(report)))
    assert from_wire(EngineReport, sent) == report


etas = st.floats(1_000, 1e7)
means = st.floats(1, 10_000)
variances = st.floats(0, 1e8)
epsilons = st.floats(0.0005, 0.499)
D_SLA_S, EPSILON_D_S = 0.05, 0.002

windows = st.lists(
    st.tuples(st.floats(0.001, 0.2), st.floats(0, 1)),  # latency, share of the cap that decodes
    min_size=1,
    max_size=30,
)


def overflow_probability(b: float, eta: float, mean: float, variance: float) -> float:
    """P(S > eta) for b requests, eq. 10 with mu_S and sigma_S of eqs. 8 and 9."""
    sigma = math.sqrt(b * variance)
    if sigma == 0:
        return float(b * mean > eta)
    return 1 - NormalDist().cdf((eta - b * mean) / sigma)


@given(eta=etas, mean=means, variance=variances, epsilon_m=epsilons)
def test_eq_12_keeps_the_overflow_probability_and_one_more_would_not(
    eta: float, mean: float, variance: float, epsilon_m: float
) -> None:
    b = exact_batch(eta, mean, variance, theta(epsilon_m))
    tiny = 1e-6  # of rounding, where eq. 10 is met with equality
    if b:
        assert overflow_probability(b, eta * (1 + 1e-9), mean, variance) <= epsilon_m + tiny
    assert overflow_probability(b + 1, eta * (1 - 1e-9), mean, variance) >= epsilon_m - tiny


@given(eta=etas, more=st.floats(1, 3), mean=means, variance=variances, epsilon_m=epsilons)
def test_eq_12_grows_with_memory(eta, more, mean, variance, epsilon_m):
    smaller, larger = (exact_batch(e, mean, variance, theta(epsilon_m)) for e in (eta, eta * more))
    assert smaller <= larger


@given(eta=etas, mean=means, variance=variances, one=epsilons, other=epsilons)
def test_eq_12_grows_with_the_overflow_that_is_accepted(eta, mean, variance, one, other):
    shy, bold = (exact_batch(eta, mean, variance, theta(e)) for e in sorted((one, other)))
    assert shy <= bold


@given(eta=etas, mean=means, variance=variances, more=st.floats(1, 3), epsilon_m=epsilons)
def test_eq_12_shrinks_with_longer_and_with_more_varied_requests(
    eta: float, mean: float, variance: float, more: float, epsilon_m: float
) -> None:
    b = exact_batch(eta, mean, variance, theta(epsilon_m))
    assert exact_batch(eta, mean * more, variance, theta(epsilon_m)) <= b
    assert exact_batch(eta, mean, variance * more, theta(epsilon_m)) <= b


def search(b_min: int, b_max: int, alpha: int, delta: int) -> SlaBatching:
    return SlaBatching(
        d_sla_s=D_SLA_S, epsilon_d_s=EPSILON_D_S, b_min=b_min, b_max=b_max, alpha=alpha, delta=delta
    )


@given(
    b_min=st.integers(1, 64),
    span=st.integers(0, 1000),
    alpha=st.integers(1, 300),
    delta=st.integers(0, 300),
    measured=windows,
)
def test_algorithm_2_never_leaves_its_search_space(b_min, span, alpha, delta, measured):
    sla = search(b_min, b_min + span, alpha, delta)
    b = b_min + span
    for tau_s, share in measured:
        b = sla.batch(tau_s, share * b)
        assert b_min <= b <= b_min + span


@given(
    alpha=st.integers(1, 100).map(lambda half: 2 * half),
    delta=st.integers(0, 64),
    measured=windows,
    tau_s=st.floats(D_SLA_S + 2 * EPSILON_D_S, 1.0),
    share=st.floats(0, 1),
)
def test_algorithm_2_does_not_grow_while_it_is_too_slow(alpha, delta, measured, tau_s, share):
    sla = search(1, 256, alpha, delta)
    b = 256
    for window in measured:
        b = sla.batch(window[0], window[1] * b)
    # Lines 12 and 13 cut the interval at the bounds and line 9 takes it below B_min. Lines 6 and 7
    # then mend it, which is the one way it grows here: by less than half of alpha.
    assume(sla.high - sla.low >= alpha and sla.low >= 1)
    assert sla.batch(tau_s, share * min(b, sla.high)) <= b


@given(delta=st.integers(0, 64), measured=windows, tau_s=st.floats(0.0, D_SLA_S - 2 * EPSILON_D_S))
def test_algorithm_2_does_not_shrink_while_a_full_batch_is_fast_enough(delta, measured, tau_s):
    sla = search(1, 256, 16, delta)
    b = 256
    for window in measured:
        b = sla.batch(window[0], window[1] * b)
    # At B_max lines 6 and 12 leave an interval that line 9 or 10 then has to mend.
    assume(sla.high - sla.low >= 16 and sla.high <= 256)
    assert sla.batch(tau_s, b) >= b
