"""Classes on vLLM's own scheduler: who starts while others are left out of a step."""

import pytest
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request

from controller.agreements import KEY
from tests.vllm.harness import Rig
from tests.vllm.replicas.test_by_class import (
    AGREEMENTS,
    CLASSES,
    prompts_keep_coming,
    rig_of,
    timed,
)

LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}


def add(rig: Rig, req_id: str, name: str, prompt: int, output: int, adapter: int = 0) -> None:
    params = SamplingParams(
        max_tokens=output, ignore_eos=True, extra_args={KEY: AGREEMENTS[name].to_wire()}
    )
    lora = LoRARequest(f"adapter{adapter}", adapter, "/nowhere") if adapter else None
    arrival_s, priority = rig.now_s, CLASSES[name].get("priority", 0)
    rig.scheduler.add_request(
        Request(
            req_id,
            [1] * prompt,
            params,
            None,
            arrival_time=arrival_s,
            priority=priority,
            lora_request=lora,
        )
    )


def adapters(rig: Rig) -> set[int]:
    return {r.lora_request.lora_int_id for r in rig.scheduler.running if r.lora_request}


@pytest.mark.parametrize("in_flight", [1, 2])
def test_nobody_starts_with_an_adapter_too_many_beside_those_that_are_left_out(
    tiny_llama, in_flight
):
    rig = rig_of(tiny_llama, in_flight=in_flight, **LORA)
    timed(rig, in_flight)
    for k in range(55):
        add(rig, f"b{k}", "batch", 20, 120, adapter=1 if k == 0 else 2)
    for _ in range(30):
        rig.step()
    add(rig, "g", "gold", 30, 150, adapter=2)
    while len(rig.step().num_scheduled_tokens) >= len(rig.scheduler.running):
        pass  # as many adapters as may run: soon steps leave out as ever
    add(rig, "c", "gold", 20, 50, adapter=3)
    add(rig, "d", "gold", 20, 50)  # which may start
    while rig.scheduler.has_unfinished_requests():
        rig.step()
        assert len(adapters(rig)) <= 2
    rig.run()
    assert all(rig.is_whole(f"b{k}", 120) for k in range(55))
    assert rig.is_whole("g", 150) and rig.is_whole("c", 50) and rig.is_whole("d", 50)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_prompt_that_gives_way_keeps_its_adapters_place(tiny_llama, in_flight):
    rig = rig_of(tiny_llama, in_flight=in_flight, **LORA)
    timed(rig, in_flight)
    add(rig, "d", "gold", 20, 200, adapter=1)
    for _ in range(60):
        rig.step()
    add(rig, "b", "batch", 900, 5, adapter=2)
    while not rig.scheduler.requests["b"].num_computed_tokens:
        rig.step()
    add(rig, "g", "gold", 20, 100, adapter=3)
    add(rig, "h", "gold", 500, 5, adapter=1)  # which may start, so the prompt would give way to it
    while rig.scheduler.has_unfinished_requests():
        rig.step()
        assert len(adapters(rig)) <= 2
    rig.run()
    assert rig.is_whole("b", 5) and rig.is_whole("g", 100) and rig.is_whole("d", 200)


def half_computed(rig: Rig, in_flight: int) -> Request:
    """A long prompt that can wait, beside a strict decode that makes steps short."""
    timed(rig, in_flight)
    add(rig, "d", "gold", 20, 900)
    prompts_keep_coming(rig)
    add(rig, "b", "batch", 900, 5)
    while not rig.scheduler.requests["b"].num_computed_tokens:
        rig.step()
    return rig.scheduler.requests["b"]


def steps_until_its_end(rig: Rig) -> int:
    steps = 0
    while "b" not in rig.ends:
        rig.step()
        steps += 1
    return steps


@pytest.mark.parametrize("in_flight", [1, 2])
def test_while_vllm_starts_nobody_prompts_give_way_to_nobody_who_waits(tiny_llama, in_flight):
    alone = rig_of(tiny_llama, in_flight=in_flight)
    half_computed(alone, in_flight)
    rig = rig_of(tiny_llama, in_flight=in_flight)
    half_computed(rig, in_flight)
    rig.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    add(rig, "g", "gold", 500, 5)
    # Who waits counts as demand, so chunks may be a little larger or smaller.
    assert abs(steps_until_its_end(rig) - steps_until_its_end(alone)) <= 1
    assert not rig.scheduler.requests["g"].num_computed_tokens
    rig.scheduler.set_pause_state(PauseState.UNPAUSED)
    rig.run()
    assert rig.is_whole("b", 5) and rig.is_whole("g", 5) and rig.is_whole("d", 900)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_prompts_give_way_once_in_sixteen_steps_to_one_that_vllm_does_not_start(
    tiny_llama, in_flight
):
    rig = rig_of(tiny_llama, in_flight=in_flight)
    loose = half_computed(rig, in_flight)
    manager = rig.scheduler.kv_cache_manager
    allocated = manager.allocate_slots
    manager.allocate_slots = lambda request, *args, **more: (
        None if request.request_id == "g" else allocated(request, *args, **more)
    )
    add(rig, "g", "gold", 500, 5)
    before = loose.num_computed_tokens
    got_on = 0
    for _ in range(4):
        rig.step()
        got_on += loose.num_computed_tokens > before
        before = loose.num_computed_tokens
    assert got_on == 3
    manager.allocate_slots = allocated
    rig.run()
    assert rig.is_whole("b", 5) and rig.is_whole("g", 5) and rig.is_whole("d", 900)
