"""What the scheduler measures is what happened, on vLLM's own scheduler and a clock we move."""

import pytest
from vllm.sampling_params import SamplingParams

from controller.models.lengths import LengthMoments
from controller.report_checks import check_report
from tests.vllm.harness import BLOCK, Rig, batching, engine_config, limits, ngram


@pytest.fixture
def rig(tiny_llama):
    # The paper's policies go by the lengths of finished requests.
    return Rig.led(tiny_llama, {"policy": "paper"})


def test_the_report_of_a_small_run_has_every_number_right(rig):
    rig.add("a", prompt=20, output=3)
    rig.add("b", prompt=33, output=5)
    rig.step()  # both prefills: 53 tokens
    rig.step()  # two decodes
    rig.add("c", prompt=5, output=50)
    report = rig.exchange(limits(7, reason="memory"))
    check_report(report)
    assert (report.replica_id, report.group, report.seq) == ("replica", "group", 1)
    assert (report.mode, report.reason, report.max_running) == ("leased", "memory", 7)
    assert (report.engine.max_num_seqs, report.engine.max_num_batched_tokens) == (64, 512)
    assert (report.engine.kv_tokens, report.engine.block_tokens) == (4095 * BLOCK, BLOCK)
    assert (report.running, report.waiting) == (2, 1)
    assert (report.decoding, report.prefilling) == (2, 1)
    assert report.kv_used_tokens == (2 + 3) * BLOCK  # 21 and 34 tokens, in whole blocks
    assert (report.arrivals, report.finished, report.preemptions) == (3, 0, 0)
    assert (report.recent.steps, report.recent.decodes, report.recent.tokens) == (1, 2, 2)
    assert report.recent.itl_s == pytest.approx(0.01)
    assert (report.itl.n, report.ttft.n) == (2, 2)
    assert report.ttft.total_s == pytest.approx(2 * 0.01)
    rig.run()
    last = rig.exchange()
    assert last.lengths == LengthMoments(
        n=3,
        input=20 + 33 + 5,
        output=3 + 5 + 50,
        input_sq=20**2 + 33**2 + 5**2,
        output_sq=3**2 + 5**2 + 50**2,
        cross=20 * 3 + 33 * 5 + 5 * 50,
    )
    assert (last.running, last.waiting, last.kv_used_tokens) == (0, 0, 0)
    assert (last.decoding, last.prefilling) == (0, 0)
    assert last.itl.n == (3 - 1) + (5 - 1) + (50 - 1)


def test_lengths_count_the_tokens_of_those_that_still_run(tiny_llama):
    rig = Rig.led(tiny_llama)
    for k in range(20):
        rig.add(f"short{k}", prompt=10, output=5)
        rig.add(f"long{k}", prompt=10, output=200)
    rig.go_on(100)
    lengths = rig.exchange().lengths
    assert (lengths.n, lengths.mean_input) == (20, 10)
    assert lengths.mean_output > 50  # a half of them has outlived 90


def test_the_time_an_engine_sat_idle_is_no_step_time(rig, monkeypatch):
    steps = []
    after_step = rig.scheduler.governor.after_step
    monkeypatch.setattr(
        rig.scheduler.governor,
        "after_step",
        lambda sample, *args: (steps.append(sample), after_step(sample, *args)),
    )
    rig.add("first", prompt=10, output=3)
    rig.run()
    rig.exchange()
    rig.now_s += 60.0
    rig.add("second", prompt=10, output=3)
    rig.run()
    report = rig.exchange()
    assert report.recent.itl_s == pytest.approx(0.01)
    assert report.itl.total_s == pytest.approx(4 * 0.01)
    assert [sample.duration_s for sample in steps] == pytest.approx([0.01] * 6)


def test_the_time_an_engine_was_paused_is_no_step_time(rig):
    from vllm.v1.core.sched.interface import PauseState

    rig.add("r", prompt=10, output=3)
    rig.step()
    rig.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert not rig.scheduler.has_requests()  # so vLLM's engine waits, and schedules nothing
    rig.now_s += 120.0
    rig.scheduler.set_pause_state(PauseState.UNPAUSED)
    rig.run()
    assert rig.exchange().itl.total_s == pytest.approx(2 * 0.01)
    assert rig.is_whole("r", 3)


def test_with_two_steps_in_flight_the_gap_between_outputs_is_the_step_time(tiny_llama):
    rig = Rig.led(tiny_llama, in_flight=2)
    rig.add("a", prompt=600, output=8)
    rig.add("b", prompt=20, output=30)
    rig.run()
    report = rig.exchange()
    # The first output comes two steps after its scheduling, all others one step apart.
    assert report.itl.n == (8 - 1) + (30 - 1)
    assert report.itl.total_s == pytest.approx(report.itl.n * 0.01)
    assert rig.is_whole("a", 8)
    assert rig.is_whole("b", 30)


def test_a_request_that_was_aborted_arrived_and_did_not_finish(rig):
    rig.add("kept", prompt=10, output=5)
    rig.add("running", prompt=10, output=50)
    rig.step()
    rig.step()
    rig.add("waiting", prompt=10, output=50)
    rig.abort("running")
    rig.abort("waiting")
    rig.run()
    report = rig.exchange()
    assert (report.arrivals, report.finished, report.lengths.n) == (3, 1, 1)
    assert (report.lengths.input, report.lengths.output) == (10, 5)
    assert report.ttft.n == 2


def test_a_request_with_stop_strings_that_is_aborted_as_it_decodes_met_one(rig):
    stop = SamplingParams(max_tokens=50, stop=["."])
    rig.add("speaking", prompt=10, output=50).sampling_params = stop
    rig.step()
    rig.step()
    rig.add("silent", prompt=10, output=50).sampling_params = stop
    rig.abort("speaking")
    rig.abort("silent")
    report = rig.exchange()
    assert (report.arrivals, report.finished) == (2, 1)
    assert (report.lengths.input, report.lengths.output) == (10, 2)


def test_time_to_first_token_runs_from_arrival_through_queue_and_prefill(rig):
    rig.exchange(limits(1, token_budget=64))
    rig.add("first", prompt=10, output=2)
    rig.add("one token", prompt=150, output=1)
    rig.run()
    report = rig.exchange()
    # The second waits 2 steps and needs 3 chunks: 64 + 64 + 22.
    assert report.ttft.n == 2
    assert report.ttft.total_s == pytest.approx(0.01 + 0.05)


def test_more_input_for_a_session_is_no_request_that_arrived(rig):
    for _ in range(3):
        rig.add("session", prompt=10, output=2, resumable=True)
        rig.go_on(4)
    report = rig.exchange()
    # But its client waits for a first token each time, as vLLM's own metric has it.
    assert (report.arrivals, report.ttft.n) == (1, 3)
    assert report.ttft.total_s == pytest.approx(3 * 0.01)
    assert rig.scheduler._awaits_first_token == {}


def test_input_that_comes_early_waits_for_the_sessions_own_output_and_not_for_us(rig):
    rig.add("session", prompt=10, output=9, resumable=True)
    rig.add("session", prompt=10, output=2, resumable=True)
    rig.go_on(14)
    report = rig.exchange()
    # A second input that is there when the first is answered: one step from then.
    assert report.ttft.n == 2
    assert report.ttft.total_s == pytest.approx(2 * 0.01)


def test_speculative_steps_count_one_decode_and_its_drafts_each(tiny_llama):
    rig = Rig.led(tiny_llama, speculative_config=ngram(3), accepted=3)
    rig.add("r", prompt=10, output=1 + 1 + 4 * 4)
    rig.run()
    report = rig.exchange()
    assert report.engine.tokens_per_decode == 4
    # The first decode has no drafts yet; the other four give four tokens each.
    assert (report.recent.steps, report.itl.n) == (5, 5)
    assert rig.is_whole("r", 18)


def test_layers_of_several_kinds_share_the_blocks_and_vllm_says_what_they_hold(tiny_llama):
    config = engine_config(tiny_llama, additional_config=batching())
    config.cache_config.kv_cache_size_tokens = 40_950
    rig = Rig(config, window=64)
    rig.add("r", prompt=10 * BLOCK, output=2)
    rig.step()
    report = rig.exchange()
    assert report.engine.kv_tokens == 40_950
    taken = 4095 - rig.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    assert report.kv_used_tokens == taken * 10


def test_the_backlog_is_what_prompts_have_left_and_what_the_preempted_compute_again(tiny_llama):
    rig = Rig.led(tiny_llama, max_num_batched_tokens=64)
    rig.add("a", prompt=100, output=8)
    rig.add("b", prompt=30, output=8)
    assert rig.exchange().prompt_backlog_tokens == 130
    rig.step()
    assert rig.exchange().prompt_backlog_tokens == 130 - 64
    while rig.exchange().prompt_backlog_tokens:
        rig.step()
    rig.step()  # all decode: what they generate is no prompt
    assert rig.exchange().prompt_backlog_tokens == 0
    scheduler = rig.scheduler
    last = scheduler.running.pop()
    scheduler._preempt_request(last, rig.now_s)
    assert rig.exchange().prompt_backlog_tokens == last.num_tokens
