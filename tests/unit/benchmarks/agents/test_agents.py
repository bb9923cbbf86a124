"""The ways to choose a replica that are compared, and the figures made of what they gave."""

from benchmarks.agents.__main__ import ALONE_PER_S, FLEETS, LOADS, rows, tables
from benchmarks.agents.measure import (
    AGENTS,
    ARMS,
    CHANGE_S,
    ENGINES,
    EQUAL,
    INDEPENDENT,
    JOINS,
    LEAVES,
    OURS,
    SHARED,
    SLOWER,
    STICKY,
    WITHOUT,
    Changing,
    Found,
    SlowCost,
    requests_of,
)
from benchmarks.agents.rivals import RoundRobin, Sticky, TwoOutstanding
from replicas.profiles.profile import LinearCost
from simulator.workloads.requests import Request, every
from tests.unit.serve_app.routing.rooms import room


def test_a_conversation_sticks_to_its_engine_and_conversations_spread() -> None:
    sticky = Sticky(ENGINES)
    of = [{sticky.pick(Request(0.0, 9, 9, conversation=k), t) for t in range(3)} for k in range(40)]
    assert all(len(one) == 1 for one in of)
    assert len(set.union(*of)) == ENGINES


def test_round_robin_and_two_at_random_spread_single_requests() -> None:
    for arm in (RoundRobin(ENGINES), TwoOutstanding(ENGINES, 0)):
        taken = [arm.pick(Request(0.0, 9, 9), 0.0) for _ in range(80)]
        assert min(taken.count(k) for k in range(ENGINES)) >= 10
    two = TwoOutstanding(2, 0)
    two.hear(0, room(running=9), 0.0)
    assert two.pick(Request(0.0, 9, 9), 0.0) == 1


def test_every_arm_chooses_an_engine_for_every_turn() -> None:
    first = requests_of(AGENTS, 0.2, 1, True)[:1]
    for arm in ARMS.values():
        made = arm(0)
        assert {made.pick(r, 1.0) for r in every(first)} <= set(range(ENGINES))


def test_single_requests_share_the_system_prompt_or_nothing() -> None:
    alone, shared = (requests_of(name, 5.0, 1, True) for name in (INDEPENDENT, SHARED))
    assert len(alone) == len(shared) == len({r.conversation for r in alone})
    assert {r.prefix for r in alone} == {()}
    assert len({r.prefix for r in shared}) == 1
    assert {b.input_tokens - a.input_tokens for a, b in zip(alone, shared, strict=True)} == {2048}


def test_figures_are_ratios_to_headroom_and_to_the_best_other() -> None:
    by = {
        (AGENTS, per_s, arm, EQUAL): [Found(10, (0.1, 0.1, 1.0 + place), 4.0 - place / 2, 0.1)]
        for per_s in LOADS.values()
        for place, arm in enumerate([OURS, *(arm for arm in ARMS if arm != OURS)])
    }
    by |= {
        (traffic, per_s, arm, EQUAL): [Found(10, (0.1, 0.1, 0.5), 7.0, 1.0)]
        for traffic, per_s in ALONE_PER_S.items()
        for arm in (OURS, WITHOUT)
    }
    by |= {
        (AGENTS, per_s, arm, fleet): [Found(10, (0.1, 0.1, p99), 7.0, 1.0)]
        for fleet, (per_s, _) in FLEETS.items()
        for arm, p99 in ((OURS, 1.5), (STICKY, 1.0))
    }
    found = {row.id: row for row in rows(by)}
    assert found["agents_light_ttft"].estimate.value == 0.5
    assert found["agents_heavy_goodput"].estimate.value == 4.0 / 3.5
    assert found["agents_heavy_ttft_best"].estimate.value == 0.5
    assert found["agents_independent_ttft"].met and found["agents_shared_goodput"].met
    assert found["agents_small_ttft"].estimate.value == 1.5 and not found["agents_joins_ttft"].met
    assert len(tables(by)) == 8


def test_one_engine_comes_or_is_sent_nothing_more_and_its_conversations_alone_move() -> None:
    first = [Request(0.0, 9, 9, conversation=k) for k in range(40)]
    for fleet in (JOINS, LEAVES):
        changing = Changing(Sticky(ENGINES), fleet)
        before, after = ([changing.pick(r, now_s) for r in first] for now_s in (0.0, CHANGE_S))
        less, more = (before, after) if fleet == JOINS else (after, before)
        assert set(less) == set(range(1, ENGINES)) and set(more) == set(range(ENGINES))
        assert all(a == b for a, b in zip(less, more, strict=True) if b)


def test_one_engine_is_slow() -> None:
    cost = LinearCost(0.02, 0.001)
    assert SlowCost(cost).step_s(3, 0, 0, 0) == SLOWER * cost.step_s(3, 0, 0, 0)
