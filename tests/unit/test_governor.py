"""The fast loop: what a replica may run in its next step, and what it reports."""

import msgspec
import pytest

from controller.errors import ConfigError
from controller.records import ReplicaReport, StepLimits, from_wire, to_wire
from replicas.governor import LOCAL
from tests.builders import batching, engine, governor, limits, sample, state


def test_limits_that_were_pushed_hold() -> None:
    g = governor()
    g.apply(limits(max_running=40, token_budget=512), now_s=0.0)
    assert g.before_step(state(running=10), 1.0) == StepLimits(40, 512)


def test_without_a_pushed_budget_the_engines_own_holds() -> None:
    g = governor()
    g.apply(limits(max_running=40, token_budget=None), now_s=0.0)
    assert g.before_step(state(running=10), 1.0).token_budget == 2048


def test_a_cap_below_what_runs_drains_the_batch() -> None:
    g = governor()
    g.apply(limits(max_running=1), now_s=0.0)
    caps = [g.before_step(state(running=n), 1.0).max_running for n in (64, 40, 3, 1, 0)]
    assert caps == [64, 40, 3, 1, 1]
    assert g.report(state(), 1.0, "r", "g").overruled == 3


def test_no_limit_goes_past_what_the_engine_was_started_with() -> None:
    g = governor()
    g.apply(limits(max_running=10_000, token_budget=10**6), now_s=0.0)
    assert g.before_step(state(), 1.0) == StepLimits(256, 2048)


def test_every_decode_and_one_block_of_prefill_always_have_their_tokens() -> None:
    g = governor(limits_of_engine=engine(tokens_per_decode=4))
    g.apply(limits(max_running=64, token_budget=1), now_s=0.0)
    assert g.before_step(state(running=50), 1.0).token_budget == 50 * 4 + 16


def test_advisory_mode_never_touches_the_engine() -> None:
    g = governor(batching(policy="paper", enforce=False))
    g.apply(limits(max_running=2, token_budget=64, enforce=False), now_s=0.0)
    assert g.before_step(state(running=5), 1.0) == StepLimits(256, 2048)
    assert g.report(state(running=5), 1.0, "r", "g").max_running == 2


def test_a_lease_that_ran_out_makes_the_replica_decide_alone_and_a_new_one_ends_that() -> None:
    g = governor(batching(policy="static", max_running={"max": 100}))
    g.apply(limits(max_running=40, lease_s=5.0), now_s=0.0)
    assert g.mode(4.9) == "leased"
    assert g.before_step(state(), 4.9).max_running == 40
    assert g.mode(5.0) == "fallback"
    assert g.before_step(state(), 5.0).max_running == 100  # the static policy's own answer
    g.apply(limits(max_running=30), now_s=6.0)
    assert g.mode(6.0) == "leased"
    assert g.before_step(state(), 6.0).max_running == 30


def test_where_no_controller_is_expected_the_replica_is_local_from_the_start() -> None:
    g = governor(batching(policy="static", max_running={"max": 7}), leased=False)
    assert g.before_step(state(running=2), 0.0).max_running == 7
    report = g.report(state(), 0.0, LOCAL, LOCAL)
    assert (report.mode, report.reason) == ("local", "static")


def test_alone_the_sla_still_binds() -> None:
    g = governor(batching(policy="paper", sla={"itl_ms": 20}, paper={"l0": "buffer"}), leased=False)
    for step in range(200):  # 20 decodes take five times the SLA
        g.before_step(state(running=20, waiting=50), step / 10)
        g.after_step(sample(decodes=20, duration_s=0.1), prefills=0)
    report = g.report(state(running=20, waiting=50), 20.0, LOCAL, LOCAL)
    assert report.reason == "sla"
    assert report.max_running == 20


def test_the_two_readers_of_recent_steps_do_not_take_each_others_window() -> None:
    g = governor(batching(policy="paper", sla={"itl_ms": 20}))
    for _ in range(10):
        g.after_step(sample(decodes=10, duration_s=0.03), prefills=0)
    assert g.report(state(), 1.0, "r", "g").recent.steps == 10
    g.before_step(state(running=10), 10.0)  # the lease is over: the lonely loop reads all ten too
    assert g.report(state(), 10.0, "r", "g").recent.steps == 0


def test_recent_steps_are_means_of_the_steps_that_decoded() -> None:
    g = governor()
    g.after_step(sample(decodes=10, duration_s=0.02), prefills=0)
    g.after_step(sample(decodes=30, duration_s=0.04, prefill_tokens=100), prefills=2)
    g.after_step(sample(decodes=0, duration_s=9.0, prefill_tokens=500), prefills=1)
    recent = g.report(state(running=31), 1.0, "r", "g").recent
    assert recent.steps == 2
    assert recent.itl_s == pytest.approx((10 * 0.02 + 30 * 0.04) / 40)
    assert recent.decodes == 20
    assert recent.tokens == (10 + 130) / 2


def test_a_report_counts_what_happened() -> None:
    g = governor()
    for _ in range(6):
        g.arrived()
    g.finished(100, 20)
    g.finished(300, 40)
    g.preempted()
    g.first_token(0.5)
    g.after_step(sample(decodes=3), prefills=1)
    report = g.report(state(running=4, waiting=2, kv_used_tokens=5000), 2.0, "r", "g")
    assert (report.arrivals, report.finished, report.preemptions) == (6, 2, 1)
    assert report.arrival_rate_per_s == 3.0
    assert (report.lengths.mean_input, report.lengths.mean_output) == (200, 30)
    assert (report.decoding, report.prefilling) == (3, 3)  # one in prefill and two waiting
    assert (report.itl.n, report.ttft.n) == (3, 1)
    assert report.kv_frac == 0.25


def test_an_idle_engine_has_neither_decodes_nor_prefills() -> None:
    g = governor()
    g.after_step(sample(decodes=3), prefills=1)
    report = g.report(state(running=0), 2.0, "r", "g")
    assert (report.decoding, report.prefilling) == (0, 0)


def test_arrivals_are_averaged_over_the_last_ten_seconds() -> None:
    g = governor()
    rates = []
    for second in range(1, 41):
        if second <= 20:
            g.arrived()
            g.arrived()
        rates.append(g.report(state(), float(second), "r", "g").arrival_rate_per_s)
    assert rates[19] == pytest.approx(2.0)
    assert rates[24] == pytest.approx(1.0, abs=0.2)
    assert rates[39] == 0.0


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
def test_a_duration_that_cannot_be_is_left_out(duration_s: float) -> None:
    g = governor()
    g.after_step(sample(duration_s=duration_s), prefills=0)
    report = g.report(state(), 1.0, "r", "g")
    assert (report.recent.steps, report.itl.n, report.steps.n) == (0, 0, 0)


def test_a_report_survives_the_way_out_of_the_engine_and_to_the_controller() -> None:
    g = governor()
    g.after_step(sample(), prefills=1)
    g.finished(10, 5)
    report = g.report(state(running=3), 1.0, "r", "g")
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(report)))
    assert from_wire(ReplicaReport, sent) == report


def test_bounds_above_the_engines_size_are_refused_by_name() -> None:
    with pytest.raises(ConfigError) as refused:
        governor(batching(max_running={"max": 500}))
    assert refused.value.problems == [
        "batching.max_running.max: 500 is above max_num_seqs=256, the size the engine is started"
        " with; lower it or raise max_num_seqs"
    ]
