"""An engine that can do both takes a role and leaves it, with vLLM's own scheduler."""

from dataclasses import replace

import pytest
from vllm.config import KVTransferConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request, RequestStatus

from controller.records import Role
from replicas.engine.request_facts import CAME
from tests.vllm.connector import IdleConnector
from tests.vllm.harness import Rig, limits

BLOCKED = RequestStatus.WAITING_FOR_REMOTE_KVS
BLOCK = {"policy": "adaptive", "sla": {"itl_ms": 20}, "roles": "auto"}


class Sends(IdleConnector):
    """Prompts for others stay held until somebody has read them."""

    loads_by_request = True

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return 0, False

    def request_finished(self, request, block_ids):
        return bool((request.kv_transfer_params or {}).get("do_remote_decode")), {}


@pytest.fixture
def rig(tiny_llama) -> Rig:
    transfer = KVTransferConfig(
        kv_connector="Sends", kv_role="kv_both", kv_connector_module_path=__name__
    )
    return Rig.led(tiny_llama, BLOCK, kv_transfer_config=transfer)


def told(rig: Rig, role: Role | None) -> Role | None:
    """The role that it reports, once it was told this one."""
    return rig.exchange(replace(limits(64), role=role)).role


def prompt(rig: Rig, name: str, tokens: int) -> None:
    params = SamplingParams(
        max_tokens=1, extra_args={"kv_transfer_params": {"do_remote_decode": True}}
    )
    rig.scheduler.add_request(Request(name, [1] * tokens, params, None, arrival_time=rig.now_s))


def itl_ms(rig: Rig) -> float | None:
    return rig.scheduler.governor.config.sla.itl_ms


def test_it_keeps_its_itl_until_its_last_decode_has_ended_and_loses_nothing(rig):
    for k in range(4):
        rig.add(f"r{k}", prompt=20, output=30 + k)
    for _ in range(5):
        rig.step()
    assert told(rig, "prefill") == "mixed"
    prompt(rig, "p0", 300)
    assert itl_ms(rig) == 20
    rig.run()
    assert all(rig.is_whole(f"r{k}", 30 + k) for k in range(4))
    # What another engine has yet to read is nobody's decode.
    assert "p0" in rig.scheduler.requests
    assert told(rig, "prefill") == "prefill"
    assert itl_ms(rig) is None


def test_it_gives_its_itl_up_once_as_many_wait_as_run_until_nobody_does(rig):
    for k in range(2):
        rig.add(f"r{k}", prompt=20, output=60)
    for _ in range(3):
        rig.step()
    assert told(rig, "prefill") == "mixed"
    for k in range(2):
        prompt(rig, f"p{k}", 900)
    assert told(rig, "prefill") == "prefill"
    assert itl_ms(rig) is None
    while rig.scheduler.waiting:
        assert told(rig, "prefill") == "prefill"
        rig.step()
    assert told(rig, "prefill") == "mixed"
    assert itl_ms(rig) == 20
    rig.run()
    assert all(rig.is_whole(f"r{k}", 60) for k in range(2))
    assert told(rig, "prefill") == "prefill"


def gives_up(rig: Rig) -> None:
    """Two decodes are left, and as many prompts for others wait."""
    for k in range(2):
        rig.add(f"r{k}", prompt=20, output=60)
    for _ in range(3):
        rig.step()
    for k in range(4):
        prompt(rig, f"p{k}", 900)
    assert told(rig, "prefill") == "prefill"


def test_tokens_that_come_late_where_the_itl_is_given_up_are_late(rig):
    gives_up(rig)
    before, rig.step_s = rig.exchange().late_itl, 0.05
    for _ in range(3):
        rig.step()
    assert rig.exchange().late_itl == before + 6


def test_an_engine_that_answers_alone_keeps_its_itl_however_many_wait(rig):
    assert told(rig, "prefill") == "prefill"
    for k in range(150):  # 64 may run; no other engine is left
        rig.add(f"r{k}", prompt=30, output=9)
    for _ in range(6):
        rig.step()
    assert len(rig.scheduler.waiting) >= len(rig.scheduler.running) > 0
    assert told(rig, "prefill") == "mixed"
    assert itl_ms(rig) == 20
    for k in range(64):
        prompt(rig, f"p{k}", 30)
    assert told(rig, "prefill") == "prefill"


def test_its_own_queue_when_it_is_told_ends_without_an_itl(rig):
    for k in range(2):
        rig.add(f"r{k}", prompt=20, output=60)
    for _ in range(3):
        rig.step()
    for k in range(3):
        rig.add(f"s{k}", prompt=900, output=2)
    assert told(rig, "prefill") == "prefill"
    rig.add("late", prompt=900, output=2)
    while any(r.request_id.startswith("s") for r in rig.scheduler.waiting):
        assert told(rig, "prefill") == "prefill"
        rig.step()
    assert told(rig, "prefill") == "mixed"
    for k in range(8):
        rig.add(f"t{k}", prompt=900, output=2)
    assert told(rig, "prefill") == "mixed"
    assert told(rig, "mixed") == "mixed"
    assert told(rig, "prefill") == "prefill"  # told anew, it has these in its queue


def test_what_is_loaded_gives_up_no_itl(rig):
    for k in range(2):
        rig.add(f"r{k}", prompt=20, output=60)
    for _ in range(3):
        rig.step()
    for k in range(3):
        made = rig.add(f"l{k}", prompt=20, output=3)
        made.kv_transfer_params = {"do_remote_prefill": True}
    for k in range(3):
        rig.add(f"g{k}", prompt=20, output=3).status = BLOCKED
    assert told(rig, "prefill") == "mixed"


def test_a_prompt_that_others_have_yet_to_read_and_one_that_is_read_are_no_decodes(rig):
    rig.add("r", prompt=20, output=3)
    for _ in range(2):
        rig.step()
    # As of a connector that sends what is computed here of a request that is answered here.
    rig.scheduler.connector.request_finished = lambda request, blocks: (True, {})
    rig.scheduler.connector.request_finished_all_groups = lambda request, blocks: (True, {})
    rig.run()
    assert "r" in rig.scheduler.requests
    assert told(rig, "prefill") == "prefill"


def test_a_session_keeps_its_itl_while_it_is_answered_and_not_while_its_client_thinks(rig):
    rig.add("s", prompt=20, output=3, resumable=True)
    rig.step()
    assert told(rig, "prefill") == "mixed"
    for _ in range(4):
        rig.step()
    assert "s" in rig.scheduler.requests
    assert told(rig, "prefill") == "prefill"
    rig.add("s", prompt=20, output=3, resumable=True)
    rig.step()
    assert told(rig, "prefill") == "mixed"
    for _ in range(5):
        rig.step()
    assert told(rig, "prefill") == "prefill"


def test_a_role_that_is_taken_and_left_costs_nothing_of_what_was_learnt(rig):
    rig.add("r", prompt=20, output=60)
    rig.run()
    learnt = limits(30, target_s=0.02, memory={"row": 59}, role="prefill")
    report = rig.exchange(learnt)
    assert (report.role, report.max_running, report.memory) == ("prefill", 64, {})
    prompt(rig, "p0", 600)
    rig.step()
    assert told(rig, "mixed") == "mixed"
    report = rig.exchange()
    assert (report.max_running, report.memory) == (30, {"row": 59})
    rig.scheduler.configure({**BLOCK, "sla": {"itl_ms": 30}})
    assert rig.exchange().memory == {}


def test_prompts_for_others_are_arrivals_and_no_requests_of_this_one(rig):
    rig.exchange()
    for k in range(3):
        prompt(rig, f"p{k}", 30)
    rig.add("r", prompt=20, output=2)
    rig.now_s += 5.0
    report = rig.exchange()
    assert report.arrivals == 4
    per_s = report.arrival_rate_per_s
    rig.run()
    assert rig.exchange().ttft.n == 1
    rig.add("q", prompt=20, output=2)
    rig.now_s += 5.0
    assert 0 < per_s == pytest.approx(rig.exchange().arrival_rate_per_s, rel=0.5)


def test_one_whose_prompt_was_computed_elsewhere_has_come_before_that(rig):
    params = SamplingParams(
        max_tokens=3, extra_args={"kv_transfer_params": {CAME: rig.now_s - 4.0}}
    )
    rig.scheduler.add_request(Request("r", [1] * 20, params, None, arrival_time=rig.now_s))
    rig.run()
    assert rig.exchange().ttft.longest_s > 4.0


def test_one_that_decodes_again_does_so_at_once(rig):
    assert told(rig, "prefill") == "prefill"
    prompt(rig, "p0", 600)
    rig.step()
    assert rig.scheduler.max_num_scheduled_tokens == 512
    assert told(rig, "mixed") == "mixed"
    assert itl_ms(rig) == 20
    rig.add("r", prompt=20, output=5)
    rig.run()
    assert rig.is_whole("r", 5)


def test_another_block_and_no_role_hold_at_once(rig):
    assert told(rig, "prefill") == "prefill"
    rig.scheduler.configure({**BLOCK, "sla": {"itl_ms": 30}})
    assert itl_ms(rig) is None
    assert told(rig, None) is None
    assert itl_ms(rig) == 30
