"""What a switch makes of one replica: off touches nothing, and outlasts every lease."""

from typing import Any

import pytest

from controller.records import BatchLimits, StepLimits
from controller.switch import Switch
from replicas.governor import Governor
from tests.builders import batching, governor, limits, sample, state

AS_STARTED = StepLimits(256, 2048)
OFF, ON = Switch(5, False), Switch(6, True)


def pushed(*switches: Switch, **fields: Any) -> BatchLimits:
    return limits(max_running=30, token_budget=600, switches=switches, **fields)


def step(g: Governor, now_s: float = 0.1) -> StepLimits:
    return g.before_step(state(running=10, waiting=5), now_s)


@pytest.mark.parametrize("group", [None, "g"])
def test_off_touches_nothing_and_says_what_it_would_do(group: str | None) -> None:
    g = governor()
    g.apply(pushed(Switch(5, False, group)), 0.0)
    assert step(g) == AS_STARTED
    said = g.report(state(), 0.1, "r", "g")
    assert (said.max_running, said.enforced, said.switches) == (
        30,
        False,
        (Switch(5, False, group),),
    )


def test_on_again_the_limits_hold_from_the_next_step() -> None:
    g = governor()
    g.apply(pushed(OFF), 0.0)
    g.apply(pushed(ON), 0.5)
    assert step(g) == StepLimits(30, 600)
    assert g.report(state(), 0.6, "r", "g").enforced


def test_another_groups_switch_is_kept_and_not_followed() -> None:
    g, other = governor(), Switch(5, False, "other")
    g.apply(pushed(other), 0.0)
    assert step(g) == StepLimits(30, 600)
    assert g.report(state(), 0.1, "r", "g").switches == (other,)


def test_older_limits_do_not_undo_a_newer_switch() -> None:
    g = governor()
    g.apply(pushed(ON), 0.0)
    for older in (pushed(OFF), pushed()):
        g.apply(older, 0.5)
        assert g.enforced


def test_on_is_as_the_configuration_says() -> None:
    g = governor(batching(enforce=False))
    g.apply(pushed(OFF, ON, enforce=False), 0.0)
    assert step(g) == AS_STARTED


@pytest.mark.parametrize("switch", [OFF, ON, Switch(5, False, "g")])
def test_in_local_fallback_the_last_state_holds(switch: Switch) -> None:
    g = governor(batching(policy="static", max_running={"max": 20}))
    g.apply(pushed(switch), 0.0)
    for now_s in (5.0, 60.0, 3600.0):
        assert step(g, now_s) == (StepLimits(20, 2048) if switch.enforce else AS_STARTED)
        assert g.mode(now_s) == "fallback"
        said = g.report(state(), now_s, "r", "g")
        assert (said.enforced, said.switches) == (switch.enforce, (switch,))


def test_in_local_fallback_the_capacity_is_not_that_of_a_cap_that_is_off() -> None:
    capacities = []
    for switch in (ON, Switch(5, False, "g")):
        g = governor(batching(policy="static", max_running={"max": 10}))
        g.apply(pushed(switch), 0.0)
        for decodes in range(1, 100):
            g.after_step(sample(decodes=decodes, kv_tokens=0, duration_s=0.02), prefills=0)
        g.finished(100, 100)
        step(g, 6.0)
        capacities.append(g.report(state(), 6.0, "r", "g").capacity_per_s or 0.0)
    # Memory holds 133, and the 20 ms of a step are theirs: 13 times what 10 carry.
    assert capacities[1] / capacities[0] == pytest.approx(13.3, rel=0.02)


ADAPTIVE = batching(policy="adaptive", sla={"itl_ms": 50})


def drive(g: Governor, switch: Switch, seconds: int) -> None:
    """Long steps, preemptions and late tokens, as vLLM's own limits cause them."""
    for second in range(seconds):
        g.apply(pushed(switch), float(second))
        for _ in range(20):
            g.after_step(sample(decodes=40, prefill_tokens=2000, duration_s=0.2), prefills=1)
            g.after_step(sample(decodes=40, duration_s=0.05), prefills=0)
        g.preempted()
        g.resumed(2.0)
        g.finished(100, 50)


def test_what_happens_while_it_is_off_leaves_no_late_tokens_and_no_fear_behind() -> None:
    g = governor(ADAPTIVE)
    drive(g, Switch(5, True), 2)
    half: Any = g.step_half
    theta, late = half._admission.theta.value, half._chunks._target.not_caused
    drive(g, Switch(6, False), 20)
    assert half._admission.theta.value == theta
    assert half._chunks._target.not_caused < late
    drive(g, Switch(7, True), 2)
    assert half._admission.theta.value != theta
    # The times of its steps are true all the same.
    assert g.step_half.model is not None
    assert g.step_half.model.predict_s(40, 2000, 0, 0) == pytest.approx(0.05, rel=0.1)
