"""Another batching block while requests run: what changes at once, and what goes on."""

from typing import Any

from tests.vllm.harness import Rig, engine_config, limits


def rig_of(tiny_llama, **block: Any) -> Rig:
    return Rig.led(tiny_llama, block)


def test_running_requests_go_on_whole_under_another_policy_and_bound(tiny_llama):
    rig = rig_of(tiny_llama, policy="static")
    rig.add_all(12, prompt=20, output=30)
    rig.go_on(5)
    rig.scheduler.configure(
        {"policy": "adaptive", "sla": {"itl_ms": 50}, "max_running": {"max": 4}}
    )
    rig.add("late", prompt=20, output=5)
    rig.run()
    assert rig.all_whole(12, 30)
    assert rig.is_whole("late", 5)
    report = rig.exchange()
    assert report.finished == 13
    assert report.preemptions == 0


def test_static_limits_of_a_running_engine_schedule_as_if_it_was_started_with_them(tiny_llama):
    """Also where the decodes take the whole budget, and prompts wait."""
    live = rig_of(tiny_llama)
    live.exchange(limits(8, token_budget=9))
    started = Rig(engine_config(tiny_llama, max_num_seqs=8, max_num_batched_tokens=9))
    steps = 0
    for k in range(20):
        for rig in (live, started):
            rig.add(f"r{k}", prompt=5 + 7 * k % 40, output=3 + 5 * k % 30)
    while started.scheduler.has_unfinished_requests():
        told = [rig.step().num_scheduled_tokens for rig in (live, started)]
        assert told[0] == told[1]
        steps += 1
    assert steps > 50
    assert not live.scheduler.has_unfinished_requests()


def test_a_first_ttft_makes_late_requests_step_aside_and_none_ends_that(tiny_llama):
    one = {"policy": "adaptive", "max_running": {"max": 1}}
    rig = Rig.led(tiny_llama, one)
    for k in range(4):
        rig.add(f"r{k}", prompt=20, output=5)
        rig.now_s += 1
    rig.scheduler.configure(one | {"sla": {"ttft_ms": 2500}})
    rig.step()
    assert [r.request_id for r in rig.scheduler.running] == ["r2"]
    rig.scheduler.configure(one)
    assert [r.request_id for r in rig.scheduler.waiting] == ["r0", "r1", "r3"]
    rig.run()
    assert rig.all_whole(4, 5)
