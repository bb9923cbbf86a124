"""What holds for the shared models over any telemetry: sums, percentiles, fits, capacities."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.capacity import capacity_per_s
from controller.models.histogram import PER_DECADE, merge
from controller.models.lengths import LengthRing
from controller.models.step_time import StepModel, fit
from controller.records import EngineReport, StepSample, from_wire, to_wire
from serve_app.scaling.demand import replicas_needed, whole
from tests.builders import histogram_of, moments_of, stats_of
from tests.property.strategies import examples, lengths, reports, samples

durations_s = st.lists(st.floats(1e-4, 99.0), min_size=1, max_size=200)
steps = st.lists(samples, min_size=1, max_size=49)


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


@given(pairs=lengths)
def test_a_running_request_holds_more_than_its_input_and_less_than_the_longest(pairs):
    batch = moments_of(pairs).mean_held
    assert min((i for i, _ in pairs), default=0) <= batch
    assert batch <= max((i + o for i, o in pairs), default=0)
    assert moments_of(pairs).variance_total >= 0


@given(one=steps, other=steps)
def test_step_statistics_of_two_engines_add_up_to_sums_over_all_their_steps(one, other):
    a, b, n, tt = np.zeros((6, 6)), np.zeros(6), 0.0, 0.0
    for engine in one, other:
        for s in engine:
            v = np.array([1.0, *s.features, float(s.prefill_tokens > 0)])
            v /= [1, 100, 100_000, 1000, 1_000_000, 1]
            v[4] += v[3]
            a += np.outer(v, v)
            b += s.duration_s * v
            n += 1
            tt += s.duration_s**2
    both = stats_of(one) + stats_of(other)
    assert both.a == pytest.approx(a.ravel().tolist(), rel=1e-9, abs=1e-9)
    assert both.b == pytest.approx(b.tolist(), rel=1e-9, abs=1e-9)
    assert (both.n, both.tt) == pytest.approx((n, tt))


@examples(0.20)
@given(seen=st.lists(samples, min_size=52, max_size=120))
def test_a_fit_is_never_negative_and_never_infinite(seen: list[StepSample]) -> None:
    model = fit(stats_of(seen))
    if model is not None:
        numbers = (*model.costs, model.sigma_s)
        assert all(0 <= number < math.inf for number in numbers)


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
