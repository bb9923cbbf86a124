"""What holds for the paper's equations and algorithms over their whole range."""

import math
from statistics import NormalDist

from hypothesis import assume, given
from hypothesis import strategies as st

from controller.models.memory import exact_batch, theta
from controller.policies.paper import SlaBatching

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
