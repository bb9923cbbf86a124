"""What the Governor passes on to the policy's step half, and what bound its steps."""

from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.policies import registry
from controller.policies.base import ApplyPushed, ReadBatch
from controller.records import (
    BatchLimits,
    BoundSteps,
    EngineLimits,
    EngineState,
    Reason,
    StepLimits,
    StepSample,
)
from replicas.governor import Governor
from tests.builders import batching, engine, governor, limits, sample, state


class Told(ApplyPushed):
    """A step half that keeps what it is told, and names the reasons it is given."""

    def __init__(self, config: BatchingConfig, size: EngineLimits) -> None:
        super().__init__(config, size)
        self.told: list[Any] = []
        self.reason: Reason | None = None
        self.may_pause = False

    def limits(self, state: EngineState, read_batch: ReadBatch, pushed: BatchLimits) -> StepLimits:
        step = super().limits(state, read_batch, pushed)
        return StepLimits(step.max_running, step.token_budget, self.may_pause, self.reason)

    def receive(self, pushed: BatchLimits) -> None:
        self.told.append(pushed)

    def observe(self, sample: StepSample) -> None:
        self.told.append(sample)

    def finished(self, output_tokens: int) -> None:
        self.told.append(("finished", output_tokens))

    def aborted(self, output_tokens: int) -> None:
        self.told.append(("left", output_tokens))

    def preempted(self) -> None:
        self.told.append("preempted")

    def resumed(self, gap_s: float, number: int = 0) -> None:
        self.told.append(("resumed", gap_s))

    def hold_to(self, itl_frac: float) -> None:
        self.told.append(("held to", itl_frac))


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Governor of such a step half, and that."""
    made: list[Told] = []

    def make(config: BatchingConfig, size: EngineLimits) -> Told:
        made.append(Told(config, size))
        return made[-1]

    def build(*, leased: bool = True, **size: Any) -> tuple[Governor, Told]:
        g = governor(batching(policy="paper"), engine(**size), leased=leased)
        return g, made[-1]

    monkeypatch.setitem(registry.STEP_HALVES, "paper", make)
    return build


def test_it_is_told_of_all_that_happens(half: Any) -> None:
    g, told = half()
    pushed, step = limits(), sample()
    g.apply(pushed, 0.0)
    g.after_step(step, prefills=0)
    g.finished(100, 50)
    g.aborted(7)
    g.preempted()
    g.resumed(1.5)
    assert told.told == [
        pushed,
        step,
        ("finished", 50),
        ("left", 7),
        "preempted",
        ("resumed", 1.5),
    ]


def test_a_step_on_a_clock_that_jumped_is_not_told(half: Any) -> None:
    g, told = half()
    g.after_step(sample(duration_s=-1e-9), prefills=0)
    g.after_step(sample(duration_s=float("inf")), prefills=0)
    assert told.told == []
    g.after_step(sample(duration_s=0.0), prefills=0)
    assert len(told.told) == 1


def test_alone_it_receives_the_limits_that_the_replica_gave_itself(half: Any) -> None:
    g, told = half(leased=False)
    g.before_step(state(), 0.0)
    (received,) = told.told
    assert received.max_running == g.report(state(), 0.0, "r", "g").max_running
    g.before_step(state(), 0.4)
    assert len(told.told) == 1  # one period is half a second
    g.before_step(state(), 0.5)
    assert len(told.told) == 2


def test_steps_are_counted_by_what_bound_them(half: Any) -> None:
    g, told = half()
    reasons: list[Reason | None] = ["memory", "sla", "sla", "bound", "load", "load", "load", None]
    for told.reason in reasons:
        g.before_step(state(), 0.0)
    assert g.report(state(), 0.0, "r", "g").bound_steps == BoundSteps(1, 2, 1, 3, 1)


def test_a_policy_that_sees_to_prompts_itself_may_leave_them_nothing(half: Any) -> None:
    g, told = half(tokens_per_decode=2)
    told.may_pause = True
    told.reason = "sla"
    g.apply(limits(max_running=64, token_budget=1), 0.0)
    assert g.before_step(state(running=30), 0.0) == StepLimits(64, 60, True, "sla")
    told.may_pause = False
    assert g.before_step(state(running=30), 0.0) == StepLimits(64, 76, False, "sla")


def test_the_model_it_goes_by_is_reported(half: Any) -> None:
    g, told = half()
    assert g.report(state(), 0.0, "r", "g").model is None
    told.model = object()
    assert g.report(state(), 0.0, "r", "g").model is told.model


def test_outputs_are_counted_by_their_length() -> None:
    g = governor()
    for tokens in (1, 3, 3):
        g.finished(100, tokens)
    assert g.report(state(), 0.0, "r", "g").outputs[:4] == (1, 0, 2, 0)


def test_a_cap_that_is_what_runs_is_not_overruled() -> None:
    g = governor()
    g.apply(limits(max_running=10), 0.0)
    g.before_step(state(running=10), 0.0)
    assert g.report(state(running=10), 0.0, "r", "g").overruled == 0


def test_what_was_pushed_makes_limits_enforced_or_not() -> None:
    g = governor()
    assert g.enforced
    g.apply(limits(enforce=False), 0.0)
    assert not g.enforced


def test_what_the_limits_say_of_the_sla_is_reported() -> None:
    g = governor()
    g.apply(limits(capacity_per_s=2.5, sla_out_of_reach=True), 0.0)
    said = g.report(state(), 0.0, "r", "g")
    assert (said.capacity_per_s, said.sla_out_of_reach) == (2.5, True)


def test_every_preemption_is_counted() -> None:
    g = governor()
    g.preempted()
    g.preempted()
    assert g.report(state(), 0.0, "r", "g").preemptions == 2


def test_where_delivery_is_paced_late_tokens_are_those_past_their_due_time() -> None:
    sla = {"itl_ms": 50, "delivery": "paced"}
    one = governor(BatchingConfig.model_validate({"sla": sla}))
    one.after_step(StepSample(10, 100, 0, 0, 0.2, late=3), 0)
    one.resumed(4.0)
    assert one.report(state(), 1.0, "r", "g").late_itl == 3


def test_what_steps_are_held_to_is_told_reported_and_outlasts_another_configuration(
    half: Any,
) -> None:
    g, told = half()
    assert g.report(state(), 1.0, "r", "g").itl_frac == 1
    g.hold_to(0.9)
    assert told.told[-1] == ("held to", 0.9)
    assert g.report(state(), 1.0, "r", "g").itl_frac == 0.9
    g.configure(batching(policy="paper", sla={"itl_ms": 80}))
    assert g.step_half.told[-1] == ("held to", 0.9)
