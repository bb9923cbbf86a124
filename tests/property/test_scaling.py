"""Whatever it is told, the autoscaling policy answers with a number of replicas."""

import math
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from serve_app.autoscaling import CapacityPolicy
from serve_app.scaling.demand import with_some_gone
from serve_app.scaling.reading import PUBLISHED

garbage = (
    st.none()
    | st.booleans()
    | st.text(max_size=3)
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.lists(st.integers(), max_size=2)
)
plausible = st.floats(0, 1e4) | st.sampled_from((0.0, 1e-300, 1e12, 5e-324))
of_replicas = st.dictionaries(st.integers(0, 4), plausible | garbage, max_size=5)
by_name = st.dictionaries(st.sampled_from(PUBLISHED) | st.text(max_size=2), of_replicas | garbage)
samples = st.lists(st.builds(SimpleNamespace, timestamp=plausible | garbage), max_size=2)
contexts = st.fixed_dictionaries(
    {},
    optional={
        "aggregated_metrics": by_name | garbage,
        "raw_metrics": st.fixed_dictionaries(
            {"running": st.dictionaries(st.integers(0, 4), samples)}
        )
        | garbage,
        "current_num_replicas": st.integers(0, 5) | garbage,
        "target_num_replicas": st.integers(0, 5) | garbage,
        "capacity_adjusted_min_replicas": st.integers(0, 3) | garbage,
        "capacity_adjusted_max_replicas": st.integers(1, 9) | garbage,
        "total_queued_requests": plausible | garbage,
        "total_num_requests": plausible | garbage,
        "current_time": plausible | garbage,
        "config": garbage,
        "policy_state": garbage,
    },
)
settings = st.fixed_dictionaries(
    {
        "target_utilization": st.floats(0.01, 1),
        "drain_s": st.floats(0.01, 1e3),
        "queue_factor": st.floats(0.01, 10),
        "queue_for_s": st.floats(0, 100),
        "peak_s": st.floats(0, 1e3),
        "peak_starts": st.floats(0, 10),
        "start_s": st.floats(0, 1e3),
        "late_frac": st.floats(0.001, 0.5),
        "at_risk": st.floats(0, 0.9),
    }
)


@given(scaling=settings, looks=st.lists(contexts, min_size=1, max_size=6))
def test_it_never_raises_and_always_gives_a_number(scaling, looks):
    policy = CapacityPolicy(**scaling)
    for look in looks:
        desired, state = policy(SimpleNamespace(**look))
        assert isinstance(desired, int) and desired >= 0
        assert isinstance(state, dict)


@given(
    wanted=st.floats(0, 1e4), more=st.floats(0, 1e3), lasting=st.integers(0, 50),
    at_risk=st.floats(0, 0.9),
)  # fmt: skip
def test_what_is_left_without_those_at_risk_is_what_was_wanted(wanted, more, lasting, at_risk):
    there = with_some_gone(wanted, lasting, at_risk)
    left = min(there, lasting) + max(there - lasting, 0) * (1 - at_risk)
    assert math.isclose(left, wanted, rel_tol=1e-9, abs_tol=1e-9)
    assert with_some_gone(wanted + more, lasting, at_risk) >= there * (1 - 1e-12)
    assert with_some_gone(wanted, lasting, 0.0) == wanted


numbers = st.fixed_dictionaries({name: st.floats(0, 1e4) for name in PUBLISHED})


@given(
    scaling=settings,
    looks=st.lists(st.tuples(st.floats(0, 500), st.lists(numbers, max_size=4)), max_size=8),
    bounds=st.tuples(st.integers(0, 3), st.integers(0, 20)),
    queued=st.floats(0, 1e4),
)
def test_what_is_desired_is_within_the_bounds_and_has_a_reason(scaling, looks, bounds, queued):
    policy, least, most = CapacityPolicy(**scaling), bounds[0], sum(bounds) or 1
    now_s, target = 0.0, least
    for after_s, replicas in looks:
        now_s += after_s
        metrics = {name: {i: said[name] for i, said in enumerate(replicas)} for name in PUBLISHED}
        context = SimpleNamespace(
            aggregated_metrics=metrics,
            current_num_replicas=len(replicas),
            target_num_replicas=target,
            capacity_adjusted_min_replicas=least,
            capacity_adjusted_max_replicas=most,
            total_queued_requests=queued,
            current_time=now_s,
        )
        target, state = policy(context)
        assert least <= target <= most
        assert state["brimful_words"] and not math.isnan(state["brimful_desired"])
