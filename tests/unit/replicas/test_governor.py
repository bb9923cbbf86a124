"""The Governor: what a step may do, who decides, what it measured, what it passes on."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.records import (
    YOUNG_STEPS,
    Advised,
    BatchLimits,
    EngineReport,
    EngineState,
    RecentSteps,
    StepLimits,
)
from controller.report_checks import check_report
from controller.switch import Switch
from replicas.engine.governor import Governor
from replicas.engine.shadow import Shadow
from tests.builders import (
    ENGINE,
    batching,
    engine,
    governor,
    histogram_of,
    limits,
    sample,
    state,
)

BOUNDED = {"max_running": {"max": 48}}
UNENFORCED = {"enforce": False}


@pytest.mark.parametrize(
    ("block", "size", "pushed", "running", "step"),
    [
        # Before any limits: as the engine was started, or as configured.
        ({}, {}, None, 10, (256, 2048)),
        (BOUNDED, {}, None, 10, (48, 2048)),
        (BOUNDED | UNENFORCED, {}, None, 10, (256, 2048)),
        ({}, {}, {"max_running": 30, "token_budget": 600}, 10, (30, 600)),
        ({}, {}, {"max_running": 1000, "token_budget": 100_000}, 10, (256, 2048)),
        ({}, {}, {"max_running": 0}, 0, (1, 2048)),  # a cap of nothing still runs one
        # A cap below what runs drains.
        *(({}, {}, {"max_running": 1}, n, (max(n, 1), 2048)) for n in (64, 40, 2, 1, 0)),
        # A budget leaves tokens for every decode and a block of prefill, up to the engine's own.
        ({}, {}, {"token_budget": 1}, 0, (64, 16)),
        ({}, {}, {"token_budget": 1}, 100, (100, 116)),
        ({}, {"tokens_per_decode": 5}, {"token_budget": 1}, 100, (100, 516)),
        ({}, {"max_num_batched_tokens": 260}, {"token_budget": 1}, 256, (256, 260)),
        # What is not enforced touches nothing.
        (
            UNENFORCED,
            {},
            {"max_running": 5, "token_budget": 100, "enforce": False},
            200,
            (256, 2048),
        ),
    ],
)
def test_a_step_is_as_pushed_and_safe_for_what_runs(block, size, pushed, running, step):
    g = governor(batching(**block), engine(**size))
    if pushed is not None:
        g.apply(limits(**pushed), 0.0)
    assert g.before_step(state(running), 0.1) == StepLimits(*step)
    said = g.report(state(running), 0.1, "r", "g")
    enforced = block.get("enforce", True)
    assert said.token_budget == step[1] or not enforced  # the one that held, not the one asked for
    if not enforced and pushed is not None:  # it says what it would do
        assert (said.max_running, said.reason) == (5, "sla")


def test_drafts_that_are_known_count_in_the_place_of_the_most_there_are() -> None:
    g = governor(batching(), engine(tokens_per_decode=5))
    g.apply(limits(token_budget=1), 0.0)
    known = replace(state(100), drafts=30)
    assert g.before_step(known, 0.1).token_budget == 100 + 30 + 16
    assert [g.report(one, 0.2, "r", "g").drafts for one in (known, state(100))] == [30, None]


EXACT = batching(paper={"memory": "exact"})
SLA = batching(paper={"memory": "exact"}, sla={"itl_ms": 50})


def work(g: Governor, decodes: int, duration_s: float, steps: int = 10) -> None:
    for _ in range(steps):
        g.after_step(sample(decodes=decodes, duration_s=duration_s), prefills=1)


def learned(g: Governor) -> Governor:
    """One that finished fixed lengths of 100 + 100: 100 of them fill the engine's memory."""
    for _ in range(5):
        g.finished(100, 100)
    work(g, 10, 0.02)
    return g


def test_the_controller_decides_while_its_lease_holds_and_then_the_replica_alone() -> None:
    g = learned(governor(EXACT))
    g.apply(limits(max_running=30, lease_s=5.0), 10.0)
    for now_s, cap, mode in ((14.999, 30, "leased"), (15.0, 100, "fallback")):
        assert g.before_step(state(waiting=5), now_s).max_running == cap
        assert g.mode(now_s) == mode
    said = g.report(state(waiting=5), 15.0, "r", "g")
    assert (said.mode, said.max_running, said.reason) == ("fallback", 100, "memory")
    g.apply(limits(max_running=33, lease_s=60.0), 16.0)  # limits that come end the fallback
    assert g.before_step(state(waiting=5), 75.9).max_running == 33
    said = g.report(state(), 75.9, "r", "g")
    assert (said.mode, said.reason) == ("leased", "sla")


def test_a_replica_that_never_reached_its_controller_waits_one_lease_for_it() -> None:
    g = learned(governor(EXACT))
    for now_s, cap, mode in ((4.9, 256, "leased"), (5.0, 100, "fallback")):
        assert g.before_step(state(waiting=5), now_s).max_running == cap
        assert g.mode(now_s) == mode


def test_without_a_controller_a_replica_decides_alone_and_follows_one_that_appears() -> None:
    g = learned(governor(EXACT, leased=False))
    assert g.before_step(state(waiting=5), 0.0).max_running == 100
    assert g.before_step(state(running=180, waiting=5), 0.0).max_running == 180  # they drain
    assert g.mode(0.0) == "local"
    g.apply(limits(max_running=12), 1.0)
    assert g.before_step(state(running=5), 1.0).max_running == 12
    assert (g.mode(1.0), g.mode(100.0)) == ("leased", "fallback")


def test_alone_it_decides_once_a_period_not_once_a_step() -> None:
    g = governor(SLA, leased=False)
    caps = []
    work(g, 100, 0.06, steps=YOUNG_STEPS)
    for now_s, batch in ((0.0, 100), (0.1, 80), (0.49, 40), (0.5, 30), (0.6, 30)):
        work(g, batch, 0.06)
        caps.append(g.before_step(state(running=0), now_s).max_running)
    # Too slow twice: (1 + 100) / 2, then (1 + mean of 80, 40 and 30) / 2.
    assert caps == [50, 50, 50, 25, 25]


def said(g: Governor, now_s: float = 1.0, running: int = 10, waiting: int = 0) -> EngineReport:
    return g.report(state(running, waiting, 3200), now_s, "r", "g")


def test_recent_steps_are_means_since_the_last_report() -> None:
    g = governor(limits_of_engine=engine(tokens_per_decode=2))
    g.after_step(sample(decodes=10, duration_s=0.02), prefills=0)
    g.after_step(sample(decodes=30, prefill_tokens=60, duration_s=0.06), prefills=1)
    g.after_step(sample(decodes=0, prefill_tokens=2048, duration_s=0.3), prefills=1)
    now = said(g)
    # Speculated tokens count; a step of prefill alone is no time between tokens.
    assert (now.recent.steps, now.recent.decodes, now.recent.tokens) == (2, 20, 70)
    # Of 40 tokens, 30 waited 60 ms and 10 waited 20 ms.
    assert now.recent.itl_s == pytest.approx(0.05)
    assert now.itl.counts == histogram_of([0.02] * 10 + [0.06] * 30).counts
    assert len(now.rows.table) == 3 * 5 * 8  # the model learns from all
    assert said(g).recent == RecentSteps()


@pytest.mark.parametrize(
    ("arrivals", "at_s", "rates"),
    [
        (20, (5.0, 15.0), [4.0, 0.0]),
        (1, (0.001,), [1.0]),  # a first report at once does not multiply it
        (100, (50.0,), [2.0]),  # after a long silence it is averaged over that
    ],
)
def test_the_arrival_rate_by_when_it_is_asked_for(arrivals, at_s, rates):
    g = governor()
    for _ in range(arrivals):
        g.arrived()
    assert [said(g, now_s).arrival_rate_per_s for now_s in at_s] == rates


def test_what_took_longer_than_the_sla_is_counted_one_by_one() -> None:
    g = governor(batching(sla={"itl_ms": 50, "ttft_ms": 1000}))
    g.after_step(sample(decodes=8, duration_s=0.05), prefills=0)
    g.after_step(sample(decodes=7, duration_s=0.0501), prefills=0)
    g.after_step(sample(decodes=0, duration_s=3.0), prefills=1)
    g.resumed(0.06)
    g.resumed(0.01)
    for ttft_s in (1.0, 1.001, 5.0):
        g.first_token(ttft_s)
    now = said(g)
    assert (now.late_itl, now.itl.n) == (8, 17)
    assert (now.late_ttft, now.ttft.n) == (2, 3)


def test_a_clock_that_jumped_makes_no_report_that_is_refused() -> None:
    g = governor()
    for duration_s in (-1.0, math.nan, math.inf):
        g.after_step(sample(duration_s=duration_s), prefills=0)
    g.first_token(-0.01)  # two machines' wall clocks
    g.resumed(-1e-9)
    now = said(g)
    check_report(now)
    assert (now.recent.steps, now.ttft.n, now.itl.n) == (0, 1, 1)


def test_limits_for_another_configuration_switch_and_change_nothing_else() -> None:
    g = governor(batching(policy="static", max_running={"max": 40}))
    assert g.report(state(), 0.0, "r", "g").generation == 0
    g.configure(batching(policy="static", max_running={"max": 8}))
    assert g.report(state(), 0.0, "r", "g").generation == 1
    g.apply(limits(max_running=40, memory={"of": "before"}), 0.0)
    assert step(g).max_running == 10  # 8, and they drain
    said = g.report(state(), 0.1, "r", "g")
    assert (said.max_running, said.memory, said.mode) == (8, {}, "leased")
    g.apply(limits(max_running=40, switches=(OFF,)), 0.0)
    assert not g.enforced
    g.apply(limits(max_running=7, generation=1, switches=(ON,), memory={"of": "now"}), 0.0)
    said = g.report(state(), 0.1, "r", "g")
    assert (said.max_running, said.memory, said.enforced) == (7, {"of": "now"}, True)


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


@pytest.mark.parametrize(
    ("since_ms", "switches", "on"),
    [
        (None, (), True),
        (6.0, (), False),
        (6.0, (OFF, ON), True),
        (6.0, (Switch(6, False),), False),
        (6.0, (Switch(6, True, "other"),), False),
        (6.1, (OFF, ON), False),  # of before the engine's start
        (math.inf, (ON,), False),
    ],
)
def test_untested_control_is_on_by_a_switch_since_the_start_alone(
    since_ms: float | None, switches: tuple[Switch, ...], on: bool
) -> None:
    config = batching(policy="static", max_running={"max": 20})
    g = Governor(
        config, engine(), has_controller=True, now_s=0.0, group="g", untested_since_ms=since_ms
    )
    assert g.enforced is (since_ms is None)
    assert step(g).max_running == (20 if since_ms is None else 256)
    g.apply(pushed(*switches), 0.0)
    assert step(g).max_running == (30 if on else 256)
    g.configure(batching(policy="static", max_running={"max": 10}))
    assert g.enforced is on
    step(g, 3600.0)  # by itself
    assert g.enforced is on


@pytest.mark.parametrize("switch", [OFF, ON, Switch(5, False, "g")])
def test_in_local_fallback_the_last_state_holds(switch: Switch) -> None:
    g = governor(batching(policy="static", max_running={"max": 20}))
    g.apply(pushed(switch), 0.0)
    for now_s in (5.0, 60.0, 3600.0):
        assert step(g, now_s) == (StepLimits(20, 2048) if switch.enforce else AS_STARTED)
        assert g.mode(now_s) == "fallback"
        said = g.report(state(), now_s, "r", "g")
        assert (said.enforced, said.switches) == (switch.enforce, (switch,))


RUNNING = np.array([900] * 20)


@pytest.mark.parametrize(
    ("policy", "longer"), [("adaptive", True), ("static", True), ("paper", False)]
)
def test_a_report_says_so_by_its_policy(policy: str, longer: bool) -> None:
    g = governor(batching(policy=policy))
    for _ in range(20):
        g.finished(70, 100)
    said = g.report(EngineState(20, 0, 5000), 1.0, "r", "g", generated=RUNNING).lengths
    assert (said.mean_output > 400) == longer
    g.configure(batching(policy="paper"))
    said = g.report(EngineState(20, 0, 5000), 1.0, "r", "g", generated=RUNNING).lengths
    assert said.mean_output == 100


DRAFTING = engine(tokens_per_decode=4)


def test_starts_above_the_cap_and_prompt_tokens_beyond_the_chunk_are_moved() -> None:
    shadow = Shadow()
    shadow.computed(StepLimits(max_running=12, token_budget=138), state(running=10))
    shadow.scheduled(sample(decodes=10, prefill_tokens=500, started=(200, 200, 100)), ENGINE)
    assert shadow.advised == Advised(3, 1, 500, 500 - 128)
    shadow.computed(StepLimits(max_running=12, token_budget=138), state(running=10))
    shadow.scheduled(sample(decodes=10, prefill_tokens=60, started=(60,)), ENGINE)
    assert shadow.advised == Advised(4, 1, 560, 372)
    shadow.computed(StepLimits(max_running=12, token_budget=138), state(running=10))
    shadow.scheduled(sample(decodes=10, prefill_tokens=100), DRAFTING)
    assert shadow.advised == Advised(4, 1, 660, 372 + 2)
    shadow.scheduled(sample(decodes=10, prefill_tokens=900), ENGINE)  # nothing was computed for it
    assert shadow.advised == Advised(4, 1, 660, 374)


def test_a_replica_that_is_led_moves_nothing_and_counts_nothing() -> None:
    for enforce, counted in ((True, 0), (False, 700)):
        g = governor(batching(policy="static", enforce=enforce))
        g.before_step(state(running=10, waiting=2), 0.0)
        g.scheduled(sample(decodes=10, prefill_tokens=700, started=(700,)))
        assert g.report(state(10, 2, 0), 1.0, "r", "g").advised.prompt_tokens == counted
