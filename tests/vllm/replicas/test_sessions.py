"""Streaming sessions: each input has a first token, and vLLM may lose one of them."""

import pytest
import vllm
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request

from replicas.engine.vllm_queues import waiting_count
from replicas.workarounds.vllm_private import number_of
from tests.vllm.harness import SKIPS_APART, Rig, engine_config, token

# A stopped or preempted session with a token under way (not seen in 0.25).
LOSES_SESSIONS = SKIPS_APART and number_of(vllm.__version__) >= (0, 29)


def add_session(rig: Rig, *, prompt: int, ends: list[int] | None = None, came_s: float) -> None:
    params = SamplingParams(max_tokens=50, ignore_eos=True, stop_token_ids=ends)
    session = Request("s", [1] * prompt, params, None, arrival_time=came_s, resumable=True)
    rig.scheduler.add_request(session)


def stopped_twice(rig: Rig) -> None:
    """A session whose stop token is followed by another one, of the step that was under way."""
    add_session(rig, prompt=20, ends=[token("s", 3), token("s", 4)], came_s=rig.now_s)
    rig.go_on(9)


@pytest.mark.skipif(not LOSES_SESSIONS, reason="it counts them right in this version")
def test_vllm_counts_a_session_as_idle_twice_that_is_stopped_twice(tiny_llama):
    # Why its count of them is not taken (docs/upstream/vllm-session-stopped-twice.md).
    rig = Rig(engine_config(tiny_llama, async_scheduling=True), AsyncScheduler, in_flight=2)
    stopped_twice(rig)
    assert rig.scheduler.num_waiting_for_streaming_input == 2
    assert waiting_count(rig.scheduler) == 0
    assert not rig.scheduler.running


@pytest.mark.parametrize("leased", [False, True])
@pytest.mark.parametrize("policy", ["static", "adaptive"])
def test_a_session_that_is_stopped_twice_is_not_counted(tiny_llama, leased, policy):
    extra = {"brimful": {"batching": {"policy": policy}, "leased": leased}}
    config = engine_config(tiny_llama, additional_config=extra, async_scheduling=True)
    rig = Rig(config, in_flight=2)
    rig.add("a", prompt=20, output=200)
    stopped_twice(rig)
    rig.now_s += 30.0  # the local loop's next look, or the end of the lease
    rig.step()
    assert rig.exchange().waiting == 0


def test_a_request_beside_a_lost_session_is_run(tiny_llama):
    rig = Rig.led(tiny_llama, in_flight=2)
    stopped_twice(rig)
    assert not rig.scheduler.has_unfinished_requests()
    rig.add("b", prompt=20, output=20)
    assert rig.scheduler.get_num_unfinished_requests() == 1  # EngineCore steps while there are any
    rig.run()
    assert rig.is_whole("b", 20)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_answer_of_one_token_is_a_first_token_though_more_input_waits(tiny_llama, in_flight):
    rig = Rig.led(tiny_llama, in_flight=in_flight)
    for _ in range(4):
        rig.add("session", prompt=10, output=1, resumable=True)
    rig.go_on(12)
    report = rig.exchange()
    assert (len(rig.tokens["session"]), report.ttft.n, report.arrivals) == (4, 4, 1)
