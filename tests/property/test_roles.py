"""Laws of roles, and of replayed time."""

from hypothesis import given
from hypothesis import strategies as st

from controller.capacity import capacity_per_s
from controller.config import Sla
from controller.fleet.role_pool import SETTLED_S, RolePool
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.policies.base import Pool
from controller.roles import (
    WORTH,
    Fleet,
    Transfer,
    best_of,
    keeps_itl,
    split_of,
    splits,
)
from tests.builders import batching, report
from tests.property.strategies import examples

models = st.builds(
    lambda c0, c1, c3, mixed: StepModel(c0, c1, 0.0, c3, 0.0, 0.0, mixed_s=mixed),
    st.floats(0.001, 0.04),
    st.floats(1e-5, 5e-4),
    st.floats(1e-6, 3e-4),
    st.floats(0, 0.005),
)
fleets = st.builds(Fleet, st.integers(1, 16), st.integers(8, 512), st.integers(512, 8192),
                   st.integers(50_000, 1_000_000))  # fmt: skip
transfers = st.builds(Transfer, st.floats(1e3, 1e6), st.floats(1e8, 1e11), st.floats(0, 0.1))
slas = st.builds(
    lambda itl_ms, ttft_ms: Sla(itl_ms=itl_ms, ttft_ms=ttft_ms),
    st.floats(20, 200),
    st.none() | st.floats(100, 20_000),
)


@st.composite
def moments(draw):
    pairs = draw(st.lists(st.tuples(st.integers(1, 8000), st.integers(1, 2000)), min_size=1,
                          max_size=20))  # fmt: skip
    sums = zip(*((1, i, o, i * i, o * o, i * o) for i, o in pairs), strict=True)
    return LengthMoments(*map(sum, sums))


@given(st.integers(0, 500), st.integers(0, 500), st.booleans())
def test_an_itl_is_given_up_where_many_wait_and_comes_back_where_nobody_does(
    running, waiting, without
):
    assert not keeps_itl(running, waiting, decodes=False, without=without)
    kept = keeps_itl(running, waiting, decodes=True, without=without)
    assert kept or waiting
    assert kept or without or waiting >= running
    assert not (kept and without and waiting)
    if not without:  # what is given up does not come back at once
        assert kept or not keeps_itl(running, waiting, decodes=True, without=True)


@examples(0.25)
@given(models, moments(), fleets, transfers, slas)
def test_never_worse_than_aggregated(model, lengths, fleet, transfer, sla):
    found = splits(model, lengths, fleet, transfer, sla)
    best = best_of(found)
    assert best.per_s >= found[0].per_s
    assert best.per_s * (1 + WORTH) >= max(one.per_s for one in found)
    assert 0 <= best.prefill < fleet.engines


@examples(0.25)
@given(models, moments(), fleets, transfers, slas)
def test_without_prefill_engines_it_is_the_capacity_of_so_many_engines(
    model, lengths, fleet, transfer, sla
):
    most = min(fleet.most_running, fleet.kv_tokens / lengths.mean_held)
    each = capacity_per_s(model, lengths, max(most, 1), sla.itl_s)
    alone = split_of(model, lengths, fleet, transfer, sla, 0)
    assert alone.through_per_s == 0
    assert abs(alone.per_s - fleet.engines * each) <= 1e-6 * fleet.engines * each


@examples(0.25)
@given(models, moments(), fleets, transfers, slas, st.data())
def test_what_goes_through_is_inside_pool_and_cards(model, lengths, fleet, transfer, sla, data):
    prefill = data.draw(st.integers(0, fleet.engines - 1))
    found = split_of(model, lengths, fleet, transfer, sla, prefill)
    wire_s = transfer.wire_s(found.through_per_s * lengths.mean_input)
    assert wire_s <= min(prefill, fleet.engines - prefill) * (1 + 1e-9)
    assert found.through_per_s >= 0 and found.direct_per_s >= 0
    fixed = split_of(model, lengths, fleet, transfer, sla, prefill, direct=False)
    assert fixed.per_s <= found.per_s * (1 + 1e-9)


@examples(0.15)
@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from(["joins", "leaves", "waits"]), st.integers(0, 9)),
             max_size=25),
)  # fmt: skip
def test_while_a_fleet_scales_one_decodes_and_no_role_is_lost(prefill, events):
    """As many of the staying engines prefill as are asked for, but one at least decodes."""
    config = batching(policy="adaptive", sla={"itl_ms": 50}, roles=prefill)
    pool, there, now_s = RolePool(), {0: report(running=3)}, 0.0
    for k, (event, at) in enumerate(events, start=1):
        if event == "joins":
            there[k] = report(running=at)
        elif event == "leaves" and there:
            del there[sorted(there)[at % len(there)]]
        before = dict(pool.roles)
        pool.keep(there, now_s)
        pool.see(there, config, Pool(), now_s)
        if event == "joins":  # then no other replica changes for a moment
            assert all(pool.roles[key] == role for key, role in before.items() if key in there)
            now_s += SETTLED_S
            pool.see(there, config, Pool(), now_s)
        elif now_s == 0.0:
            continue
        assert pool.roles.keys() == there.keys()
        count = sum(role == "prefill" for role in pool.roles.values())
        assert count == min(prefill, max(len(there) - 1, 0))
        kept = [key for key in before if key in there]
        changed = [key for key in kept if pool.roles[key] != before[key]]
        assert len({pool.roles[key] for key in changed}) <= 1  # none for nothing
        now_s += SETTLED_S
