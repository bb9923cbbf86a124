"""An engine that can do both takes a role and leaves it, with vLLM's own scheduler."""

from dataclasses import replace

import pytest
from vllm.config import KVTransferConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

from controller.records import Role
from tests.vllm.connector import IdleConnector
from tests.vllm.harness import Rig, limits

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
    # KV that another engine has yet to read is no decode.
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
