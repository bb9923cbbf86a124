"""What the Governor measured, number by number."""

from dataclasses import fields

import pytest

from controller.policies.class_chunks import SampleByClass
from controller.records import RecentSteps, ReplicaReport
from replicas.governor import Governor
from tests.builders import (
    batching,
    engine,
    governor,
    histogram_of,
    moments_of,
    sample,
    state,
    stats_of,
)


def said(g: Governor, now_s: float = 1.0, running: int = 10, waiting: int = 0) -> ReplicaReport:
    return g.report(state(running, waiting, 3200), now_s, "r", "g")


def test_a_report_names_its_replica_group_and_number() -> None:
    g = governor()
    first, second = said(g), said(g)
    assert (first.replica_id, first.group) == ("r", "g")
    assert (first.seq, second.seq) == (1, 2)
    assert first.engine == engine()


def test_what_the_engine_holds_is_what_it_was_told_now() -> None:
    g = governor()
    g.before_step(state(running=99, waiting=99), 0.0)
    now = said(g, running=10, waiting=3)
    assert (now.running, now.waiting, now.kv_used_tokens) == (10, 3, 3200)
    assert now.kv_frac == 0.16


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


def test_a_step_longer_than_the_window_is_no_more_than_all_of_it() -> None:
    g = governor()
    g.after_step(sample(decodes=4, duration_s=60.0), prefills=0)
    assert said(g, 2.0).busy_frac == 1.0


def test_waiting_requests_count_as_prefilling() -> None:
    g = governor()
    g.after_step(sample(decodes=8), prefills=2)
    now = said(g, running=10, waiting=3)
    assert (now.decoding, now.prefilling) == (8, 5)


def test_decodes_that_finished_since_do_not_run_any_more() -> None:
    g = governor()
    g.after_step(sample(decodes=8), prefills=0)
    assert said(g, running=5).decoding == 5


def test_before_the_first_step_nothing_decodes_whatever_runs() -> None:
    now = said(governor(), running=10, waiting=3)
    assert (now.decoding, now.prefilling) == (0, 3)


def test_an_idle_engine_neither_decodes_nor_prefills() -> None:
    g = governor()
    g.after_step(sample(decodes=8), prefills=2)
    idle = said(g, running=0, waiting=0)
    assert (idle.decoding, idle.prefilling) == (0, 0)


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
    g = governor()
    g.after_step(sample(decodes=10, duration_s=0.02), prefills=0)
    g.after_step(sample(decodes=30, prefill_tokens=60, duration_s=0.06), prefills=1)
    window = said(g).recent
    assert (window.steps, window.decodes, window.tokens) == (2, 20, 50)
    # Of 40 tokens, 30 waited 60 ms and 10 waited 20 ms.
    assert window.itl_s == pytest.approx(0.05)
    assert said(g).recent == RecentSteps()


def test_steps_of_prefill_alone_are_no_time_between_tokens() -> None:
    g = governor()
    g.after_step(sample(decodes=0, prefill_tokens=2048, duration_s=0.3), prefills=1)
    now = said(g)
    assert now.recent == RecentSteps()
    assert now.itl.n == 0
    assert now.steps.n == 1  # the step-time model learns from them all the same


def test_speculated_tokens_count_in_the_tokens_of_a_step() -> None:
    g = governor(limits_of_engine=engine(tokens_per_decode=4))
    g.after_step(sample(decodes=10), prefills=0)
    assert said(g).recent.tokens == 40


def test_the_controller_and_the_local_fallback_read_windows_of_their_own() -> None:
    g = governor(batching(sla={"itl_ms": 50}), leased=False)
    g.after_step(sample(decodes=10, duration_s=0.02), prefills=0)
    assert said(g, now_s=0.1).recent.decodes == 10
    g.after_step(sample(decodes=30, duration_s=0.02), prefills=0)
    g.before_step(state(), 0.2)  # the local fallback, which reads both steps
    assert said(g, now_s=0.3).recent.decodes == 30
    assert said(g, now_s=0.4).recent == RecentSteps()


def test_times_between_tokens_are_counted_once_per_token() -> None:
    g = governor()
    g.after_step(sample(decodes=3, duration_s=0.02), prefills=0)
    g.after_step(sample(decodes=1, duration_s=0.2), prefills=0)
    assert said(g).itl.counts == histogram_of([0.02] * 3 + [0.2]).counts


def test_times_to_first_token_are_counted_and_never_negative() -> None:
    g = governor()
    g.first_token(0.5)
    g.first_token(-0.01)  # two machines' wall clocks
    assert said(g).ttft.counts == histogram_of([0.5, 0.0]).counts
    assert said(g).ttft.total_s == 0.5


def test_the_statistics_of_the_fit_are_those_of_its_steps() -> None:
    g = governor()
    steps = [sample(decodes=b) for b in range(1, 60)]
    for s in steps:
        g.after_step(s, prefills=0)
    assert said(g).steps == stats_of(steps)


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


def test_the_arrival_rate_goes_back_to_zero() -> None:
    g = governor()
    for _ in range(20):
        g.arrived()
    assert said(g, 5.0).arrival_rate_per_s == 4.0
    assert said(g, 15.0).arrival_rate_per_s == 0.0


def test_a_first_report_at_once_does_not_multiply_the_rate() -> None:
    g = governor()
    g.arrived()
    assert said(g, 0.001).arrival_rate_per_s == 1.0


def test_a_report_after_a_long_silence_is_averaged_over_the_silence() -> None:
    g = governor()
    for _ in range(100):
        g.arrived()
    assert said(g, 50.0).arrival_rate_per_s == 2.0


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
def test_a_step_on_a_clock_that_jumped_is_left_out(duration_s: float) -> None:
    g = governor()
    g.after_step(sample(duration_s=duration_s), prefills=0)
    assert (said(g).recent.steps, said(g).itl.n, said(g).steps.n) == (0, 0, 0)


@pytest.mark.parametrize(("gap_s", "counted_s"), [(1.5, 1.5), (-1e-9, 0.0)])
def test_the_gap_of_a_preempted_request_is_one_gap_between_tokens(
    gap_s: float, counted_s: float
) -> None:
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


def test_without_an_sla_nothing_is_late() -> None:
    g = governor(batching())
    g.after_step(sample(duration_s=50.0), prefills=0)
    g.first_token(500.0)
    now = said(g)
    assert (now.late_itl, now.late_ttft) == (0, 0)


def test_the_tokens_of_who_was_left_out_before_are_counted_once_with_their_own_gaps() -> None:
    g = governor()
    plain = sample(decodes=3)
    whole = {each.name: getattr(plain, each.name) for each in fields(plain)}
    g.after_step(SampleByClass(**whole, tokens=(3,), longer=((0, 1.5),)), prefills=0)
    now = said(g)
    assert (now.itl.n, now.itl.total_s) == (3, pytest.approx(2 * plain.duration_s + 1.5))
