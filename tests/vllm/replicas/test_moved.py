"""A request whose own engine died, as our scheduler takes it."""

import pytest

from replicas.engine.moved import generated, moved_id
from tests.vllm.harness import Rig

PROMPT, SO_FAR, OUTPUT = 40, 7, 12


@pytest.mark.parametrize("second", [False, True])
def test_its_tokens_count_as_generated_where_the_model_runner_takes_that(tiny_llama, second):
    rig = Rig.led(tiny_llama)
    rig.scheduler.use_v2_model_runner = second
    name = moved_id("a", "0a1b2c3d", SO_FAR)
    assert generated(name) == SO_FAR
    # For the first one the sender has taken them off ``max_tokens``.
    output = OUTPUT if second else OUTPUT - SO_FAR
    prompt = list(range(3, 3 + PROMPT + SO_FAR))
    request = rig.add(name, prompt, output)
    (new,) = rig.step().scheduled_new_reqs
    assert len(new.prompt_token_ids) == (PROMPT if second else PROMPT + SO_FAR)
    if second:
        assert new.prefill_token_ids[: PROMPT + SO_FAR] == prompt
        assert list(request.output_token_ids)[:SO_FAR] == prompt[PROMPT:]
    rig.run()
    assert len(rig.tokens[name]) == OUTPUT - SO_FAR


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_it_goes_before_those_that_wait_and_no_first_token_of_it_is_late(tiny_llama, policy):
    block = {"policy": "adaptive", "sla": {"ttft_ms": 1000}, "max_running": {"max": 1}}
    rig = Rig.led(tiny_llama, block, scheduling_policy=policy)
    rig.add("runs", prompt=4, output=20)
    rig.step()
    came_s = rig.now_s
    rig.now_s += 3.0
    rig.add("waits", prompt=4, output=2)
    name = moved_id("moved", "0a1b2c3d", 2)
    now_s, rig.now_s = rig.now_s, came_s  # when its client sent it
    rig.add(name, prompt=6, output=2)
    rig.now_s = now_s
    order = []
    for _ in range(40):
        order += [new.req_id for new in rig.step().scheduled_new_reqs]
    assert order == [name, "waits"]
    assert rig.exchange().ttft.n == 2  # of the two others
