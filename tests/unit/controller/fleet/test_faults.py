"""The slow loop under bad news: late, doubled, overtaken, absurd; a replica unlike its group."""

import math
from dataclasses import replace

import pytest

from controller.config import BatchingConfig
from controller.errors import ReportError
from controller.fleet.loop import ControlLoop, unlike
from controller.models.step_time import StepModel
from controller.records import BatchLimits, ReplicaReport
from tests.builders import (
    batching,
    engine,
    linear_steps,
    moments_of,
    recent,
    report,
    sample,
    stats_of,
)
from tests.plant import Plant

SLA = {"itl_ms": 50}
ADAPTIVE = batching(policy="adaptive", sla=SLA)
LENGTHS = moments_of([(100, 100)] * 50)


def healthy(replica_id: str, slower: float = 1.0, seq: int = 1) -> ReplicaReport:
    """A replica whose steps take ``slower`` x (20 ms + 0.2 ms per decode)."""
    steps = [replace(s, duration_s=s.duration_s * slower) for s in linear_steps()]
    return report(
        replica_id=replica_id,
        seq=seq,
        engine=engine(kv_tokens=10**6),
        lengths=LENGTHS,
        steps=stats_of(steps),
        recent=recent(0.03, 50),
        model=StepModel(0.02 * slower, 2e-4 * slower, 0.0, 0.0, 0.0, 0.0),
    )


def exchange_all(loop: ControlLoop, reports: list[ReplicaReport]) -> dict[str, BatchLimits]:
    """Two rounds, so that each is answered with all in the pool."""
    for now_s in (1.0, 2.0):
        said = {
            r.replica_id: loop.exchange(replace(r, seq=int(now_s)), ADAPTIVE, now_s)
            for r in reports
        }
    return said


def test_a_slow_replica_is_left_out_and_capped_by_its_own_steps() -> None:
    fleet = [healthy(f"r{k}") for k in range(4)] + [healthy("slow", 2.0)]
    said = exchange_all(ControlLoop(), fleet)
    alone = exchange_all(ControlLoop(), [healthy("r0")])["r0"]
    assert said["r0"].model is not None
    assert alone.model is not None
    assert said["r0"].model.c1 == pytest.approx(alone.model.c1, rel=0.05)
    assert said["r0"].max_running == alone.max_running
    # 40 ms + 0.4 ms per decode: 25 where the others run 150.
    assert said["slow"].max_running == pytest.approx(25, abs=3)
    assert said["r0"].max_running == pytest.approx(150, abs=5)


def test_three_times_as_slow_breaks_the_sla_alone_and_keeps_b_min() -> None:
    said = exchange_all(ControlLoop(), [healthy(f"r{k}") for k in range(4)] + [healthy("slow", 3)])
    assert said["slow"].max_running == 1
    assert said["r1"].max_running > 100


def test_of_two_nobody_is_left_out() -> None:
    assert unlike([healthy("a"), healthy("b", 3.0)]) == frozenset()
    assert unlike([healthy("a")]) == frozenset()


@pytest.mark.parametrize("policy", ["adaptive", "paper", "static"])
def test_old_and_doubled_reports_change_nothing(policy: str) -> None:
    config = batching(policy=policy, sla=SLA)
    loop = ControlLoop()
    new = loop.exchange(healthy("a", seq=5), config, 1.0)
    assert loop.exchange(healthy("a", seq=5), config, 1.1) == new
    assert loop.exchange(healthy("a", seq=3), config, 1.2) == new


@pytest.mark.parametrize("wrong", [math.nan, -1.0, math.inf])
@pytest.mark.parametrize("policy", ["adaptive", "paper"])
def test_an_absurd_report_is_refused_and_leaves_no_trace(policy: str, wrong: float) -> None:
    config, loop = batching(policy=policy, sla=SLA), ControlLoop()
    before = loop.exchange(healthy("a", seq=1), config, 1.0)
    for bad in (
        healthy("a", seq=2)
        if wrong == 0
        else replace(healthy("a", seq=2), recent=recent(wrong, 9)),
        replace(healthy("a", seq=2), model=StepModel(wrong, 0.0, 0.0, 0.0, 0.0, 0.0)),
    ):
        with pytest.raises(ReportError):
            loop.exchange(bad, config, 1.5)
    after = loop.exchange(healthy("a", seq=3), config, 2.0)
    assert after.max_running == before.max_running


@pytest.mark.parametrize("policy", ["adaptive", "paper"])
def test_a_clock_that_jumps_does_not_move_a_cap_out_of_its_bounds(policy: str) -> None:
    config = batching(policy=policy, sla=SLA, max_running={"min": 4, "max": 60})
    loop = ControlLoop()
    for seq, now_s in enumerate((1.0, 1e9, 5.0, -3.0, 5.5, 1e9 + 1), 1):
        limits = loop.exchange(healthy("a", seq=seq), config, now_s)
        assert 4 <= limits.max_running <= 60


def slow_to_start(decodes: int) -> float:
    return 0.02 + 3e-4 * decodes


def test_alone_for_a_minute_a_replica_keeps_the_sla() -> None:
    config = BatchingConfig.model_validate(
        {"policy": "adaptive", "sla": {"itl_ms": 50}, "lease_s": 2}
    )
    plant = Plant(config, slow_to_start, engine(kv_tokens=10**6))
    for _ in range(80):
        plant.window(1000)
    settled = plant.loop.snapshot(plant.now_s)["groups"]["plants"]["replicas"]["plant"]
    until_s = plant.now_s + 60
    while plant.now_s < until_s:  # no exchange any more: the lease runs out
        plant._step(1000)
    said = plant.governor.report(plant._state(1000), plant.now_s, "plant", "plants")
    assert said.mode == "fallback"
    assert said.max_running == pytest.approx(settled["limits"].max_running, rel=0.1)


def test_an_impossible_duration_is_not_learned_from() -> None:
    plant = Plant(ADAPTIVE, slow_to_start)
    for _ in range(10):
        plant.window(50)
    before = plant.governor.report(plant._state(50), plant.now_s, "p", "g").model
    for wrong in (-1.0, math.nan, math.inf):
        plant.governor.after_step(sample(duration_s=wrong), prefills=0)
    after = plant.governor.report(plant._state(50), plant.now_s, "p", "g").model
    assert before == after
