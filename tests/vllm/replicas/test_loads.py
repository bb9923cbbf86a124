"""KV that a connector loads while the engine goes on: loads are members of the batch."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from vllm.config import KVTransferConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.connector import IdleConnector
from tests.vllm.harness import Rig, batching, engine_config, limits

PROMPT, OUTPUT, KV_BLOCKS = 257, 400, 1_250
LOAD_STEPS = 3


class Remote(IdleConnector):
    """Another engine holds every prompt, all but its last token, and sends it when it is asked."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        there = request.num_prompt_tokens - 1 - num_computed_tokens
        return max(there, 0), there > 0


class Loading(Rig):
    """A load is done ``LOAD_STEPS`` steps after it began."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._since = {}
        self.steps = self.preemptions = 0
        preempt = self.scheduler._preempt_request

        def counted(*args, **kwargs):
            self.preemptions += 1
            return preempt(*args, **kwargs)

        self.scheduler._preempt_request = counted

    def step(self):
        self.steps += 1
        return super().step()

    @property
    def received(self):
        return self.scheduler.finished_recving_kv_req_ids

    def _loads(self):
        remote = RequestStatus.WAITING_FOR_REMOTE_KVS
        return {r.request_id for r in self.scheduler.requests.values() if r.status == remote}

    def _run(self, scheduled):
        for name in self._loads() - self.received:
            self._since.setdefault(name, self.steps)
        self._since = {name: self._since[name] for name in self._since.keys() & self._loads()}
        done = {name for name, since in self._since.items() if self.steps - since >= LOAD_STEPS}
        for name in done:
            del self._since[name]
        output = KVConnectorOutput(finished_recving=done) if done else None
        return replace(super()._run(scheduled), kv_connector_output=output)


def rig_of(tiny_llama, policy, role, *, leased=True, max_num_seqs=256, **bounds):
    """With this policy, of ``POLICIES``; None: vLLM's own scheduler."""
    settings = batching(**POLICIES[policy], **bounds) if policy else {}
    if policy:
        settings["brimful"]["leased"] = leased
    if policy == "classes":
        settings["brimful"]["classes"] = CLASSES
    config = engine_config(
        tiny_llama,
        blocks=KV_BLOCKS + 1,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=2048,
        kv_transfer_config=KVTransferConfig(
            kv_connector="Remote", kv_role=role, kv_connector_module_path=__name__
        ),
        additional_config=settings,
    )
    rig = Loading(config, DynamicBatchScheduler if policy else AsyncScheduler, step_s=0.02)
    if policy in ("static", "paper") and leased:
        rig.exchange(limits(256, 2048))
    return rig


SLA = {"itl_ms": 50}
CLASSES = {
    "gold": {"itl_ms": 50, "ttft_ms": 2000, "default": True},
    "batch": {"ttft_ms": 600_000, "priority": 2},
}
POLICIES = {
    "static": {"policy": "static"},
    "paper": {"policy": "paper", "sla": SLA},
    "no SLA": {"policy": "adaptive"},
    "not enforced": {"policy": "adaptive", "sla": SLA, "enforce": False},
    "SLA": {"policy": "adaptive", "sla": SLA},
    "classes": {"policy": "adaptive"},
}


@pytest.fixture(params=["kv_consumer", "kv_both"])
def role(request):
    return request.param


@pytest.mark.parametrize("policy", POLICIES)
def test_loaded_requests_end_no_later_than_under_vllm(tiny_llama, policy, role):
    """100 at once, of which memory holds a third at their end.

    An SLA allows for fewer preemptions, each of which is a late token. While no answer has ended
    they are expected to be long, so ``adaptive`` takes 1.09 of vLLM's steps (decision 50).
    """
    ours, theirs = all_done(rig_of(tiny_llama, policy, role)), vllms(tiny_llama, role)
    if policy == "SLA":
        assert ours.steps <= 1.1 * theirs.steps
        assert ours.preemptions < theirs.preemptions / 2
    else:
        assert ours.steps <= 1.02 * theirs.steps


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_lost_where_loads_are_aborted_and_prompts_come_between(tiny_llama, policy, role):
    rng, rig, aborted = Random(7), rig_of(tiny_llama, policy, role), set()
    asked = {f"r{k}": rng.randrange(1, 120) for k in range(150)}
    for name, output in asked.items():
        rig.add(name, rng.choice([1, 40, 257, 600]), output)
        rig.go_on(rng.randrange(4))
        if rng.random() < 0.2 and (loads := sorted(rig._loads() - rig.received)):
            rig.abort(loads[0])
            aborted.add(loads[0])
    rig.run()
    assert aborted
    assert all(rig.is_whole(name, asked[name]) for name in asked.keys() - aborted)


@cache
def vllms(tiny_llama, role):
    return all_done(rig_of(tiny_llama, None, role))


def all_done(rig):
    rig.add_all(100, PROMPT, OUTPUT)
    rig.run()
    assert rig.all_whole(100, OUTPUT)
    return rig


class ByRequest(Remote):
    """It sends the prompts of requests that ask for it, as NIXL does."""

    loads_by_request = True

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if not (request.kv_transfer_params or {}).get("do_remote_prefill"):
            return 0, False
        return super().get_num_new_matched_tokens(request, num_computed_tokens)


def test_loads_begin_before_prompts_that_are_computed_here(tiny_llama):
    transfer = KVTransferConfig(
        kv_connector="ByRequest", kv_role="kv_both", kv_connector_module_path=__name__
    )
    sla = {"policy": "adaptive", "sla": {"itl_ms": 50, "ttft_ms": 2000}}
    rig = Rig.led(tiny_llama, sla, kv_transfer_config=transfer, step_s=0.04)
    rig.add_all(20, prompt=20, output=400)
    rig.go_on(60)
    for index in range(3):
        rig.add(f"long{index}", prompt=1000, output=4)
    rig.step()
    extra = {"kv_transfer_params": {"do_remote_prefill": True}}
    params = SamplingParams(max_tokens=4, extra_args=extra)
    load = Request("load", [1] * 300, params, None, arrival_time=rig.now_s)
    rig.scheduler.add_request(load)
    rig.step()
    assert rig.scheduler.requests["long2"].num_computed_tokens == 0
    assert load.status == RequestStatus.WAITING_FOR_REMOTE_KVS
