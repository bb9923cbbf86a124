"""Classes in a replay, and what R3 makes of its capacities."""

from dataclasses import replace

import pytest

from benchmarks.contests.by_class import Attained, attained, spread_over
from benchmarks.contests.classes import CLASSES, ONE_SLA, OURS, QOSERVE, Found, Task
from benchmarks.report.workers import Bench
from benchmarks.rivals.r3_classes import Result, rows_of
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_traffic

PROFILE = load_profile("paper-fig3")
TUNED = "qoserve:margin=1"


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


def test_the_figures_of_r3():
    seeds, found = (1, 2), {}

    def put(per_s: list[float], spec: str, only: str | None = None) -> None:
        for seed, q in zip(seeds, per_s, strict=True):
            found[Task("257-62", seed, False, spec, only)] = Found(q, {})

    put([12.0, 24.0], OURS)
    put([8.0, 8.0], ONE_SLA)
    put([6.0, 6.0], QOSERVE)
    put([10.0, 20.0], TUNED)
    put([8.0, 16.0], OURS, "gold")
    put([16.0, 20.0], OURS, "silver")
    put([20.0, 40.0], OURS, "batch")
    for seed, frac in ((1, 0.98), (2, 1.0)):
        of = {name: Attained(1.0, frac, 0.5) for name in CLASSES.by_name}
        found[Task("257-62", seed, False, OURS, None, 1.3)] = Found(13.0, of)
    bench = Bench(None, seeds)
    rows = rows_of(Result(["257-62"], bench, {"257-62": TUNED}, (1.3,), found))
    values = {row.id: row.estimate.value for row in rows}
    assert values["r3_fleets"] == pytest.approx(1.5)
    divided = [3 / (1 / 8 + 1 / 16 + 1 / 20), 3 / (1 / 16 + 1 / 20 + 1 / 40)]
    assert values["r3_divided"] == pytest.approx(((12 / divided[0]) * (24 / divided[1])) ** 0.5)
    assert values["r3_qoserve_tuned"] == pytest.approx(1.2)
    assert values["r3_top"] == pytest.approx(0.99)
    assert {row.id: row.at_least for row in rows if row.at_least} == {
        "r3_fleets": 1.2,
        "r3_qoserve_tuned": 1.05,
        "r3_top": 0.99,
    }
