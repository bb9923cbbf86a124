"""What the scheduler measures is what happened, on vLLM's own scheduler and a clock we move."""

import pytest
from vllm.sampling_params import SamplingParams

from controller.models.lengths import LengthMoments
from controller.report_checks import check_report
from tests.vllm.harness import BLOCK, Rig, limits


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


def test_the_time_an_engine_sat_idle_is_no_step_time(rig):
    rig.add("first", prompt=10, output=3)
    rig.run()
    rig.exchange()
    rig.now_s += 60.0
    rig.add("second", prompt=10, output=3)
    rig.run()
    report = rig.exchange()
    assert report.recent.itl_s == pytest.approx(0.01)
    assert report.itl.total_s == pytest.approx(4 * 0.01)


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


def test_preemptions_are_counted_and_a_resumed_request_has_one_first_token(tiny_llama):
    rig = Rig.led(tiny_llama, {"policy": "paper"}, blocks=1 + 8)
    rig.add_all(3, prompt=30, output=40)
    rig.run()
    report = rig.exchange()
    assert report.engine.kv_tokens == 8 * BLOCK
    assert report.preemptions > 0
    assert (report.finished, report.ttft.n) == (3, 3)
    assert report.lengths.output == 3 * 40
    assert rig.all_whole(3, 40)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("in_flight", [1, 2])
def test_the_gap_over_a_preemption_is_counted_once(tiny_llama, in_flight, cached):
    rig = Rig.led(tiny_llama, in_flight=in_flight, blocks=1 + 8, enable_prefix_caching=cached)
    names = [f"r{index}" for index in range(3)]
    for index, name in enumerate(names):
        rig.add(name, prompt=30 + index, output=40)
    came_s = {name: [] for name in names}
    while rig.scheduler.has_unfinished_requests():
        rig.step()
        for name in names:
            if len(rig.tokens[name]) > len(came_s[name]):
                came_s[name].append(rig.now_s)
    report = rig.exchange()
    assert report.preemptions > 0
    assert report.itl.n == 3 * 39
    assert report.itl.total_s == pytest.approx(sum(at[-1] - at[0] for at in came_s.values()))
    assert not rig.scheduler._lost
