"""What the scheduler measures around a preemption: counts, and the gap between two tokens."""

import pytest

from tests.vllm.harness import BLOCK, Rig, batching, engine_config


def test_preemptions_are_counted_and_a_resumed_request_has_one_first_token(tiny_llama):
    # The paper's policies go by the lengths of finished requests.
    block = batching(policy="paper")
    rig = Rig(engine_config(tiny_llama, blocks=1 + 8, additional_config=block))
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


def test_a_reset_of_the_prefix_cache_preempts_and_is_no_overcommitted_memory(tiny_llama):
    rig = Rig.led(tiny_llama)
    rig.add("r", prompt=30, output=9)
    rig.step()
    assert rig.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert not rig.scheduler.running
    rig.run()
    report = rig.exchange()
    assert (report.preemptions, report.finished) == (0, 1)
    assert report.written_tokens > report.engine.kv_tokens  # nothing is cached any more
    assert rig.is_whole("r", 9)
    assert not rig.scheduler._lost


def test_who_has_all_but_its_last_token_in_the_cache_has_a_gap_too(tiny_llama):
    rig = Rig.led(tiny_llama, enable_prefix_caching=True)
    request = rig.add("r", prompt=2 * BLOCK - 1, output=9)
    rig.step()
    rig.step()
    assert request.num_tokens == 2 * BLOCK + 1
    rig.scheduler.running.remove(request)
    rig.scheduler._preempt_request(request, rig.now_s)
    rig.now_s += 5
    assert rig.step().num_scheduled_tokens == {"r": 1}
    assert not rig.scheduler._lost
    rig.run()
    report = rig.exchange()
    # Eight gaps; given one token it counts as a decode of its step as well.
    assert report.itl.n == 8 + 1
    assert report.itl.total_s == pytest.approx(7 * 0.01 + 2 * 5.01)
    assert rig.is_whole("r", 9)


@pytest.mark.parametrize("times", [1, 2])
def test_the_gap_goes_to_the_token_that_comes_after_all_is_computed_again(tiny_llama, times):
    # It takes two steps; preempted between them, it is the same gap still.
    rig = Rig.led(tiny_llama, max_num_batched_tokens=64, max_num_seqs=4)
    rig.add("other", prompt=4, output=60)
    request = rig.add("r", prompt=80, output=9)
    while request.num_output_tokens < 2:
        rig.step()
    last_s = rig.now_s
    for _ in range(times):
        rig.scheduler.running.remove(request)
        rig.scheduler._preempt_request(request, rig.now_s)
        rig.now_s += 5
        assert rig.step().num_scheduled_tokens["r"] == 63
        assert rig.scheduler._lost
    counted = rig.exchange().itl
    rig.step()
    gap_s = rig.now_s - last_s
    assert not rig.scheduler._lost
    found = rig.exchange().itl
    assert found.n - counted.n == 2  # and the other one's token
    assert found.total_s - counted.total_s == pytest.approx(gap_s + 0.01)


@pytest.mark.parametrize("stop", [None, ["never"]])
def test_who_leaves_without_its_blocks_is_forgotten(tiny_llama, stop):
    rig = Rig.led(tiny_llama, blocks=1 + 8)
    for index in range(3):
        rig.add(f"r{index}", prompt=30, output=40).sampling_params.stop = stop
    while not rig.scheduler._lost:
        rig.step()
    (lost,) = rig.scheduler._lost
    counted = rig.exchange().itl.n
    rig.abort(lost)
    assert not rig.scheduler._lost
    assert rig.exchange().itl.n == counted
