"""Classes in a replay."""

from dataclasses import replace

from benchmarks.contests.by_class import attained, spread_over
from benchmarks.contests.scenarios import CLASSES
from controller.classes import parse_classes
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_traffic

PROFILE = load_profile("paper-fig3")


def served(spec: str, per_s: float, count: int):
    traffic = draw_traffic(load_workload("exponential:257,62"), count, None, 3).at(per_s)
    requests = spread_over(traffic, CLASSES, 3)
    plan = parse_policy(spec, Sla(), engine_of(PROFILE))
    return replay(requests, plan, Ground(PROFILE, classes=CLASSES), drain=False)


def test_a_step_is_as_long_as_the_strictest_that_decodes_in_it_allows():
    trace = served("adaptive", 9.0, 400)
    gold = {k for k, o in enumerate(trace.outcomes) if o.request.service == "gold"}
    with_gold = {
        g[1]
        for g in zip(trace.gaps.request.tolist(), trace.gaps.end_s.tolist(), strict=True)
        if g[0] in gold
    }
    longest = {True: [], False: []}
    for step in trace.steps:
        longest[step.end_s in with_gold].append(step.duration_s)
    assert sum(s > 0.05 + 1e-9 for s in longest[True]) <= 0.02 * len(longest[True])
    for name, one in CLASSES.by_name.items():
        assert attained(trace, name, one).frac >= 0.98


def test_of_those_without_a_bound_alone_no_step_is_cut_short():
    batch = CLASSES.by_name["batch"]
    traffic = draw_traffic(load_workload("exponential:257,62"), 300, None, 3).at(18.0)
    requests = [replace(r, service="batch") for r in traffic]
    plan = parse_policy("adaptive", Sla(), engine_of(PROFILE))
    trace = replay(requests, plan, Ground(PROFILE, classes=CLASSES), drain=True)
    assert all(o.finished_s for o in trace.outcomes)
    assert max(s.duration_s for s in trace.steps) > 0.1
    assert attained(trace, "batch", batch).frac == 1.0


def test_decodes_without_a_bound_are_skipped_for_strict_ones_and_all_end():
    classes = parse_classes({"strict": {"itl_ms": 50}, "batch": {"priority": 1, "default": True}})
    requests = [Request(0.0, 100, 300, priority=1, service="batch") for _ in range(160)]
    requests += [Request(10 + k, 200, 60, service="strict") for k in range(12)]
    plan = parse_policy("adaptive", Sla(), engine_of(PROFILE))
    trace = replay(requests, plan, Ground(PROFILE, classes=classes), drain=True)
    assert all(o.finished_s for o in trace.outcomes)
    strict = trace.gaps.length_s[trace.gaps.request >= 160]
    assert (strict <= 0.05 * 1.001).mean() >= 0.98
    assert max(o.first_token_s - o.request.arrival_s for o in trace.outcomes[160:]) < 1.0
    assert trace.gaps.length_s.max() < 1.0  # none of the others stalls
