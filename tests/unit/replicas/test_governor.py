"""The Governor: what it lets a step do, who decides, what it measured, what it passes on."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from controller.config import LEAST_LEASE_PERIODS
from controller.errors import ConfigError
from controller.law.rows import RowHistory
from controller.models.step_time import StepModel
from controller.records import (
    YOUNG_PERIOD_S,
    YOUNG_STEPS,
    BatchLimits,
    BoundSteps,
    EngineReport,
    Reason,
    RecentSteps,
    StepLimits,
)
from controller.roles import as_prefill
from controller.switch import Switch
from replicas.engine.governor import Governor
from tests.builders import (
    batching,
    engine,
    governor,
    histogram_of,
    limits,
    moments_of,
    report,
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


def asks(g: Governor, step: StepLimits) -> None:
    """From now on its limiter asks for this."""
    g.limiter = SimpleNamespace(limits=lambda *_: step)  # type: ignore[assignment]


def test_a_cap_that_drains_is_counted_as_overruled_and_one_that_is_what_runs_is_not() -> None:
    g = governor()
    g.apply(limits(max_running=1), 0.0)
    for n in (64, 40, 2, 1, 0):
        g.before_step(state(running=n), 0.1)
    assert g.report(state(running=0), 0.2, "r", "g").overruled == 3


def test_enforce_false_leaves_nobody_out_and_the_order_as_it_is() -> None:
    g = governor(batching(enforce=False))
    asks(g, StepLimits(5, 100, reason="sla", decodes_first=True))
    assert g.before_step(state(running=200), 0.0) == StepLimits(256, 2048)


def test_a_report_before_the_first_step_has_the_start_values() -> None:
    said = governor().report(state(running=0), 0.0, "r", "g")
    assert (said.max_running, said.token_budget, said.reason) == (256, 2048, "start")
    assert said == report(
        replica_id="r",
        running=0,
        waiting=0,
        decoding=0,
        prefilling=0,
        kv_used_tokens=0,
        arrivals=0,
        finished=0,
        arrival_rate_per_s=0.0,
        lengths_seen=said.lengths_seen,
    )


def test_drafts_that_are_known_count_in_the_place_of_the_most_there_are() -> None:
    g = governor(batching(), engine(tokens_per_decode=5))
    g.apply(limits(token_budget=1), 0.0)
    known = replace(state(100), drafts=30)
    assert g.before_step(known, 0.1).token_budget == 100 + 30 + 16
    assert [g.report(one, 0.2, "r", "g").drafts for one in (known, state(100))] == [30, None]


@pytest.mark.parametrize("policy", ["adaptive", "static", "paper"])
def test_a_bound_above_the_engines_size_is_refused_and_changes_nothing(policy: str) -> None:
    before, above = batching(policy=policy), batching(policy=policy, max_running={"max": 512})
    g, said = governor(before), r"batching\.max_running\.max: 512 is above max_num_seqs=256"
    with pytest.raises(ConfigError, match=said):
        governor(above)
    with pytest.raises(ConfigError, match=said):
        g.configure(above)
    assert g.config is before


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


def modes(lease_s: float, period_s: float, lost: int | None) -> list[str]:
    """By exchange: who decides when it begins, of 20 of which one answer is lost.

    As ``replicas.server.control_link`` does it: an answer is applied with the next exchange; one
    that does not come is given up after half a lease.
    """
    g, now_s, answered, seen = governor(EXACT), 0.0, True, []
    for exchange in range(20):
        seen.append(g.mode(now_s))
        if answered:
            g.apply(limits(lease_s=lease_s), now_s)
        answered = exchange != lost
        now_s += period_s if answered else max(period_s, lease_s / 2)
    return seen


@pytest.mark.parametrize("period_s", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("lost", [None, 0, 7])
def test_the_shortest_lease_allowed_outlasts_one_lost_answer(period_s, lost):
    assert set(modes(LEAST_LEASE_PERIODS * period_s, period_s, lost)) == {"leased"}


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


def test_alone_its_first_decisions_come_sooner() -> None:
    g = governor(SLA, leased=False)
    caps = []
    for now_s, batch in ((0.0, 100), (YOUNG_PERIOD_S / 2, 80), (YOUNG_PERIOD_S, 40)):
        work(g, batch, 0.06)
        caps.append(g.before_step(state(running=0), now_s).max_running)
    assert caps == [50, 50, 30]


def test_the_first_fallback_window_begins_with_the_last_limits() -> None:
    g = governor(SLA)
    work(g, 200, 0.2, steps=1000)  # long ago, under a controller
    g.apply(limits(max_running=64), 100.0)
    work(g, 100, 0.06)
    assert g.before_step(state(running=0), 105.0).max_running == 50


def test_alone_enforce_false_touches_nothing() -> None:
    config = batching(paper={"memory": "exact"}, enforce=False)
    g = learned(governor(config, leased=False))
    assert g.before_step(state(waiting=5), 0.0).max_running == 256
    assert g.report(state(waiting=5), 0.0, "r", "g").max_running == 100


def test_alone_the_sla_still_binds() -> None:
    g = governor(batching(sla={"itl_ms": 20}, paper={"l0": "buffer"}), leased=False)
    for tenth in range(200):  # 20 decodes take five times the SLA
        step = g.before_step(state(running=20, waiting=50), tenth / 10)
        work(g, 20, 0.1, steps=1)
    said = g.report(state(running=20, waiting=50), 20.0, "r", "g")
    assert (said.reason, said.max_running) == ("sla", 10)  # (1 + 20) / 2
    assert step.max_running == 20  # they drain


def said(g: Governor, now_s: float = 1.0, running: int = 10, waiting: int = 0) -> EngineReport:
    return g.report(state(running, waiting, 3200), now_s, "r", "g")


def test_busy_is_what_steps_took_and_its_share_of_the_last_seconds() -> None:
    g = governor()
    for step in range(10):
        g.after_step(sample(decodes=4, duration_s=0.3), prefills=0)
        now = said(g, float(step + 1))
    assert now.busy_s == pytest.approx(3.0)
    assert now.busy_frac == pytest.approx(0.3)
    for second in range(11, 31):
        now = said(g, float(second))
    assert (now.busy_s, now.busy_frac) == (pytest.approx(3.0), 0.0)


@pytest.mark.parametrize(
    ("decodes", "running", "waiting", "found"),
    [
        (8, 10, 3, (8, 5)),  # waiting requests count as prefilling
        (8, 5, 0, (5, 0)),  # decodes that finished since do not run any more
        (None, 10, 3, (0, 3)),  # before the first step nothing decodes whatever runs
        (8, 0, 0, (0, 0)),  # an idle engine neither decodes nor prefills
    ],
)
def test_who_decodes_and_who_is_in_prefill(decodes, running, waiting, found):
    g = governor()
    g.before_step(state(running=99, waiting=99), 0.0)
    if decodes is not None:
        g.after_step(sample(decodes=decodes), prefills=2 * (running == 10))
    now = said(g, running=running, waiting=waiting)
    assert (now.decoding, now.prefilling) == found
    assert (now.running, now.waiting, now.kv_used_tokens, now.kv_frac) == (
        *(running, waiting, 3200, 0.16),
    )


def test_events_are_counted_since_the_start() -> None:
    g = governor()
    for _ in range(3):
        g.arrived()
    g.preempted()
    g.finished(100, 50)
    g.finished(200, 150)
    now = said(g)
    assert (now.arrivals, now.preemptions, now.finished) == (3, 1, 2)
    assert now.lengths == moments_of([(100, 50), (200, 150)])
    assert (said(g).arrivals, said(g).finished) == (3, 2)


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


def test_the_controller_and_the_local_fallback_read_windows_of_their_own() -> None:
    g = governor(batching(sla={"itl_ms": 50}), leased=False)
    g.after_step(sample(decodes=10, duration_s=0.02), prefills=0)
    assert said(g, now_s=0.1).recent.decodes == 10
    g.after_step(sample(decodes=30, duration_s=0.02), prefills=0)
    g.before_step(state(), 0.2)  # the local fallback, which reads both steps
    assert said(g, now_s=0.3).recent.decodes == 30
    assert said(g, now_s=0.4).recent == RecentSteps()


def test_times_to_first_token_are_counted_and_never_negative() -> None:
    g = governor()
    g.first_token(0.5)
    g.first_token(-0.01)  # two machines' wall clocks
    assert said(g).ttft.counts == histogram_of([0.5, 0.0]).counts
    assert said(g).ttft.total_s == 0.5


def test_the_arrival_rate_is_over_ten_seconds() -> None:
    g = governor(now_s=100.0)
    for tenth in range(200):  # 4/s for 10 s, then 1/s for 10 s, reports twice a second
        for _ in range(4 if tenth < 100 and tenth % 10 == 0 else tenth % 10 == 0):
            g.arrived()
        if tenth % 5 == 4:
            rate_per_s = said(g, 100.0 + (tenth + 1) / 10).arrival_rate_per_s
        if tenth == 99:
            assert rate_per_s == pytest.approx(4.0)
    assert rate_per_s == pytest.approx(1.0)


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


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
def test_a_step_on_a_clock_that_jumped_is_left_out(duration_s: float) -> None:
    g = governor()
    g.after_step(sample(duration_s=duration_s), prefills=0)
    assert (said(g).recent.steps, said(g).itl.n, said(g).rows.table) == (0, 0, b"")


@pytest.mark.parametrize(("gap_s", "counted_s"), [(1.5, 1.5), (-1e-9, 0.0)])
def test_the_gap_of_a_preempted_request_is_one_gap_between_tokens(gap_s, counted_s):
    g = governor()
    g.resumed(gap_s)
    now = said(g)
    assert (now.itl.n, now.itl.total_s, now.recent.steps) == (1, counted_s, 0)


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
    free = governor(batching())  # without an SLA nothing is late
    free.after_step(sample(duration_s=50.0), prefills=0)
    free.first_token(500.0)
    assert (said(free).late_itl, said(free).late_ttft) == (0, 0)


def test_what_the_limits_say_of_the_sla_is_reported() -> None:
    g = governor()
    g.apply(limits(capacity_per_s=2.5, sla_out_of_reach=True), 0.0)
    said = g.report(state(), 0.0, "r", "g")
    assert (said.capacity_per_s, said.sla_out_of_reach) == (2.5, True)


def test_steps_are_counted_by_what_bound_them() -> None:
    g = governor()
    reasons: list[Reason | None] = ["memory", "sla", "sla", "bound", "load", "load", "load", None]
    for reason in reasons:
        asks(g, StepLimits(64, 600, reason=reason))
        g.before_step(state(), 0.0)
    assert g.report(state(), 0.0, "r", "g").bound_steps == BoundSteps(1, 2, 1, 3, 1)


def test_a_policy_that_sees_to_prompts_itself_may_leave_them_nothing() -> None:
    g = governor(limits_of_engine=engine(tokens_per_decode=2))
    for may_pause, budget in ((True, 60), (False, 76)):
        asks(g, StepLimits(64, 1, may_pause, "sla"))
        assert g.before_step(state(running=30), 0.0) == StepLimits(64, budget, may_pause, "sla")


def test_what_steps_are_held_to_is_reported_and_outlasts_another_configuration() -> None:
    g = governor()
    assert g.report(state(), 1.0, "r", "g").itl_frac == 1
    g.set_target_frac(0.9)
    g.configure(batching(policy="paper", sla={"itl_ms": 80}))
    assert g.report(state(), 1.0, "r", "g").itl_frac == 0.9


KNOWN = StepModel(0.02, 2e-4, 0.0, 1e-4, 0.0, 0.0)


def rows(g: Governor) -> np.ndarray:
    history = RowHistory()
    history.add(g.report(state(), 1.0, "r", "g").rows)
    return history.rows.table


def test_a_new_controller_is_sent_all_rows_and_then_those_that_are_new() -> None:
    g, history = governor(), RowHistory()
    for k in range(30):
        g.after_step(sample(decodes=k), prefills=0)
        if k % 10 == 9:
            packed = g.report(state(), 1.0, "r", "g").rows
            history.add(packed)
            g.apply(limits(wanted_row=history.wanted), 1.0)
            assert (packed.first, len(history.rows)) == (k - 9, k + 1)
    anew = RowHistory()
    for _ in range(2):
        anew.add(g.report(state(), 1.0, "r", "g").rows)
        g.apply(limits(wanted_row=anew.wanted), 1.0)
    assert anew.rows.table.tolist() == history.rows.table.tolist()


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


def test_another_groups_switch_is_kept_and_not_followed() -> None:
    g, other = governor(), Switch(5, False, "other")
    g.apply(pushed(other), 0.0)
    assert step(g) == StepLimits(30, 600)
    assert g.report(state(), 0.1, "r", "g").switches == (other,)


def test_on_is_as_the_configuration_says() -> None:
    g = governor(batching(enforce=False))
    g.apply(pushed(OFF, ON, enforce=False), 0.0)
    assert step(g) == AS_STARTED


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


def test_tokens_are_late_by_what_was_promised_where_the_block_has_no_itl() -> None:
    block = batching(policy="adaptive", sla={"itl_ms": 50}, roles=1)
    g = governor(block)
    g.configure(as_prefill(block), block.sla)
    g.after_step(sample(decodes=3, kv_tokens=0, duration_s=0.2), prefills=0)
    g.resumed(0.2)
    assert g.report(state(), 1.0, "r", "g").late_itl == 4
    g.configure(as_prefill(block))
    g.resumed(0.2)
    assert g.report(state(), 2.0, "r", "g").late_itl == 4


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
