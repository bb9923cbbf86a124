"""The slow loop's numbers, each at its edge: who is pooled, unlike its group, a newcomer."""

from typing import Any

import pytest

from controller.fleet.loop import ControlLoop, unlike
from controller.models.step_time import StepModel, fit
from controller.models.survival import BINS, ENDS_KEPT
from controller.records import BatchLimits, ReplicaReport
from tests.builders import (
    batching,
    engine,
    linear_steps,
    moments_of,
    recent,
    report,
    stats_of,
)

EXACT = batching(paper={"memory": "exact"})
STEPS = stats_of(linear_steps())


def of(c0: float, c1: float = 0.0, c2: float = 0.0) -> StepModel:
    return StepModel(c0, c1, c2, 0.0, 0.0, 0.0)


def takes(replica_id: str, model: StepModel | None, **overrides: object) -> ReplicaReport:
    """A replica that decoded ten requests a step and has this model of its steps."""
    known: dict[str, object] = {"recent": recent(0.02, 10.0), "lengths": moments_of([(100, 100)])}
    return report(replica_id=replica_id, model=model, **known | overrides)


@pytest.mark.parametrize(
    ("c0", "odd"), [(1.5, False), (1.501, True), (1 / 1.5, False), (0.666, True)]
)
def test_one_and_a_half_times_off_the_median_is_unlike(c0: float, odd: bool) -> None:
    fleet = [takes("a", of(1.0)), takes("b", of(1.0)), takes("c", of(c0))]
    assert unlike(fleet) == ({"c"} if odd else frozenset())


def test_three_of_whom_one_has_no_model_or_took_no_step_tell_nobody_apart() -> None:
    known = [takes("a", of(1.0)), takes("b", of(9.0))]
    assert unlike([*known, takes("c", None)]) == frozenset()
    assert unlike([*known, takes("c", of(1.0), recent=recent(0, 0, steps=0))]) == frozenset()
    assert unlike([*known, takes("c", of(1.0))]) == {"b"}


def test_who_is_unlike_is_asked_of_the_groups_average_batch() -> None:
    # 10 decodes that hold 150 tokens each; all three take 1.15 s for them, apart from c's 2 s.
    fleet = [
        takes("a", of(1.15)),
        takes("b", of(0.0, c1=0.1, c2=1e-4)),
        takes("c", of(0.5, c2=1e-3)),
    ]
    assert unlike(fleet) == {"c"}
    assert unlike([*fleet[:2], takes("c", of(0.0, c2=1.15 / 1500))]) == frozenset()


def test_one_that_is_unlike_gets_its_own_model_and_is_not_in_the_groups() -> None:
    slow = stats_of(linear_steps(c0=0.06, c1=6e-4))
    loop = ControlLoop()
    for number in range(3):
        loop.exchange(takes(f"r{number}", of(0.02, 2e-4), steps=STEPS), EXACT, 0.0)
    answer = loop.exchange(takes("slow", of(0.06, 6e-4), steps=slow), EXACT, 0.0)
    assert answer.model == fit(slow)
    assert loop.snapshot(0.0)["groups"]["g"]["pool"].model == fit(STEPS + STEPS + STEPS)
    assert answer.replicas == 4


def test_sixteen_that_join_are_in_the_pool_at_once_the_next_waits_its_quarter_second() -> None:
    loop = ControlLoop()
    for number in range(16):
        answer = loop.exchange(report(replica_id=str(number)), EXACT, 0.0)
        assert answer.replicas == number + 1
    assert loop.exchange(report(replica_id="16"), EXACT, 0.24).replicas == 16
    assert loop.exchange(report(replica_id="17"), EXACT, 0.25).replicas == 18


def test_exchanges_are_counted_and_joining_is_dated_by_them() -> None:
    loop = ControlLoop()
    for seq in (1, 2):
        for replica_id in ("a", "b"):
            loop.exchange(report(replica_id=replica_id, seq=seq), EXACT, seq)
    known = loop.snapshot(2.0)
    assert known["exchanges"] == 4
    replicas = known["groups"]["g"]["replicas"]
    assert {r: replicas[r]["joined_at_exchange"] for r in replicas} == {"a": 1, "b": 2}


def counts(total: int, bins: int = BINS) -> tuple[int, ...]:
    return (total, *[0] * (bins - 1))


@pytest.mark.parametrize(
    ("own", "group", "told"),
    [
        (counts(0), ENDS_KEPT, None),  # the group knows no more than one ring
        (counts(0), ENDS_KEPT + 1, ENDS_KEPT + 1),
        (counts(ENDS_KEPT - 1), 2, ENDS_KEPT + 1),
        (counts(ENDS_KEPT), 2, None),  # it knows enough itself
        ((), 2 * ENDS_KEPT, None),  # its policy keeps none
        (counts(0, BINS - 1), 2 * ENDS_KEPT, None),
    ],
)
def test_the_groups_output_lengths_go_to_those_that_know_too_few(
    own: tuple[int, ...], group: int, told: int | None
) -> None:
    loop, config = ControlLoop(), batching(policy="adaptive")
    loop.exchange(report(replica_id="a", outputs=counts(group)), config, 0.0)
    outputs = loop.exchange(report(replica_id="b", outputs=own), config, 0.0).outputs
    assert (None if outputs is None else sum(outputs)) == told


def test_where_no_cap_is_applied_and_no_request_fits_one_runs() -> None:
    known = report(lengths=moments_of([(300, 100)]), steps=STEPS, engine=engine(kv_tokens=200))
    answer = ControlLoop().exchange(known, batching(enforce=False), 0)
    assert answer.capacity_per_s == pytest.approx(1 / (100 * 0.0202), rel=0.01)


def test_a_model_without_kv_memory_runs_as_many_as_its_size_allows() -> None:
    def per_s(**limits: int) -> float | None:
        fields = {"lengths": moments_of([(300, 100)]), "steps": STEPS, "engine": engine(**limits)}
        return ControlLoop().exchange(report(**fields), batching(enforce=False), 0).capacity_per_s

    assert per_s(kv_tokens=0) == per_s(kv_tokens=10**9) != per_s(kv_tokens=200)


def test_a_report_a_lease_after_the_last_is_no_old_news() -> None:
    loop = ControlLoop()
    first = loop.exchange(report(seq=5, running=50), EXACT, 0.0)
    assert loop.exchange(report(seq=5, running=40), EXACT, 4.999) is first
    assert loop.exchange(report(seq=5, running=40), EXACT, 5.0) is not first


def test_uncapped_with_nothing_finished_no_capacity_is_known() -> None:
    known = report(steps=stats_of(linear_steps()))
    assert ControlLoop().exchange(known, batching(enforce=False), 0.0).capacity_per_s is None


def test_cap_and_capacity_are_by_the_share_of_the_sla_that_steps_are_held_to() -> None:
    def answer(itl_ms: float, **fields: Any) -> BatchLimits:
        known = report(lengths=moments_of([(1, 100)]), steps=stats_of(linear_steps()), **fields)
        config = batching(policy="adaptive", sla={"itl_ms": itl_ms})
        return ControlLoop().exchange(known, config, 0.0)

    held, shorter = answer(30, itl_frac=0.9), answer(27)
    assert held.max_running == shorter.max_running < answer(30).max_running
    assert held.capacity_per_s == shorter.capacity_per_s
    # One decode takes 20.2 ms: nine tenths of 22.5 are infeasible, which the SLA is not.
    assert not answer(22.5, itl_frac=0.9).sla_out_of_reach
