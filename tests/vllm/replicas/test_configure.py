"""Another batching block while requests run: what changes at once, and what goes on."""

from typing import Any

import pytest

from controller.errors import ConfigError
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


def test_a_first_ttft_makes_late_requests_step_aside_and_none_ends_that(tiny_llama):
    one = {"policy": "adaptive", "max_running": {"max": 1}}
    rig = rig_of(tiny_llama, **one)
    for k in range(4):
        rig.add(f"r{k}", prompt=20, output=5)
        rig.now_s += 1

    def waiting() -> list[str]:
        return [r.request_id for r in rig.scheduler.waiting]

    assert waiting() == ["r0", "r1", "r2", "r3"]
    rig.scheduler.configure(one | {"sla": {"ttft_ms": 2500}})
    assert waiting() == ["r0", "r1", "r2", "r3"]
    rig.step()
    assert [r.request_id for r in rig.scheduler.running] == ["r2"]
    rig.scheduler.configure(one)
    assert waiting() == ["r0", "r1", "r3"]
    rig.run()
    assert rig.all_whole(4, 5)


def test_a_block_that_needs_chunks_is_refused_where_the_engine_has_none(tiny_llama):
    rig = Rig.led(
        tiny_llama, {"policy": "static"}, enable_chunked_prefill=False, max_num_batched_tokens=1024
    )
    before = rig.scheduler.governor.config
    with pytest.raises(ConfigError, match="enable_chunked_prefill"):
        rig.scheduler.configure({"policy": "adaptive", "sla": {"itl_ms": 50}})
    assert rig.scheduler.governor.config is before


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


def test_an_engine_that_the_control_cannot_serve_does_not_start(tiny_llama):
    sla = {"brimful": {"batching": {"sla": {"itl_ms": 50}}}}
    config = engine_config(
        tiny_llama,
        additional_config=sla,
        enable_chunked_prefill=False,
        max_num_batched_tokens=1024,
        pipeline_parallel_size=2,
        distributed_executor_backend="mp",
    )
    with pytest.raises(ConfigError) as error:
        Rig(config)
    assert [line.split(":")[0] for line in error.value.problems] == [
        "engine.enable_chunked_prefill",
        "engine.pipeline_parallel_size",
    ]
