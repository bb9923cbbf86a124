"""KV that a connector loads while the engine goes on: loads are members of the batch."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest
from vllm.config import KVTransferConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.connector import IdleConnector
from tests.vllm.harness import BLOCK, Rig, batching, engine_config, limits

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
        self.steps = self.most_loads = self.preemptions = 0
        preempt = self.scheduler._preempt_request

        def counted(*args, **kwargs):
            self.preemptions += 1
            return preempt(*args, **kwargs)

        self.scheduler._preempt_request = counted

    def step(self):
        self.steps += 1
        self._whoever_holds_memory_is_known()
        scheduled = super().step()
        self.most_loads = max(self.most_loads, len(self._loads()))
        return scheduled

    def _whoever_holds_memory_is_known(self):
        """Requests that hold KV memory and do not run are loads, which start before all others."""
        reader = getattr(self.scheduler, "_reader", None)
        if reader is None:
            return
        known = self.scheduler.requests
        others = [
            one
            for one in reader.others(self.scheduler.running)
            if not known[one].is_finished()  # its load goes on, into blocks that nobody else has
        ]
        loads, ready = reader._loading(others)
        assert {r.request_id for r in loads} == set(others)
        assert len(loads) - ready == len(self._loads() - self.received)

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


def test_loads_are_begun_as_far_as_memory_goes_to_their_end(tiny_llama, role):
    ours, theirs = all_done(rig_of(tiny_llama, "SLA", role)), vllms(tiny_llama, role)
    assert theirs.most_loads * (PROMPT - 1) > 0.9 * KV_BLOCKS * BLOCK
    assert ours.most_loads < 0.8 * theirs.most_loads


def test_a_loaded_request_starts_where_nobody_else_may(tiny_llama):
    """Memory is full at the end of those that run and load: the loaded ones start all the same."""
    rig = rig_of(tiny_llama, "SLA", "kv_consumer")
    rig.add_all(100, PROMPT, OUTPUT)
    rig.step()
    begun = len(rig._loads())
    rig.go_on(2 * LOAD_STEPS)
    assert 0 < begun < 100
    assert len(rig.scheduler.running) >= begun


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


@pytest.mark.parametrize("policy", ["no SLA", "SLA", "classes"])
def test_loads_that_take_long_are_within_the_cap(tiny_llama, policy, monkeypatch):
    """B_min is 1: it starts one where nothing runs, and not another one in each step."""
    monkeypatch.setattr(f"{__name__}.LOAD_STEPS", 30)
    rig = rig_of(tiny_llama, policy, "kv_consumer", max_running={"max": 2})
    rig.add_all(40, PROMPT, 20)
    while rig.scheduler.has_unfinished_requests():
        rig.step()
        assert len(rig.scheduler.running) + len(rig._loads()) <= 2
    assert rig.preemptions == 0


def test_a_request_that_vllm_computes_after_all_has_one_slot(tiny_llama, monkeypatch):
    """vLLM drops a load that brings no more than what ends inside a block of its own cache."""
    monkeypatch.setattr(Remote, "get_num_new_matched_tokens", lambda *_: (3, True))
    rig = rig_of(tiny_llama, "SLA", "kv_both", max_running={"max": 3})
    scheduler = rig.scheduler
    hit = scheduler._get_local_prefix_cache_hit
    monkeypatch.setattr(
        scheduler,
        "_get_local_prefix_cache_hit",
        lambda r, *most: ((found := hit(r, *most))[0], 5, *found[2:]),
    )
    rig.add_all(12, PROMPT, 20)
    scheduler.schedule()
    assert len(scheduler.running) == 3


def test_static_limits_without_a_controller_leave_loads_alone(tiny_llama):
    begun = []
    for policy in ("static", None):
        rig = rig_of(tiny_llama, policy, "kv_consumer", leased=False, max_num_seqs=8)
        rig.add_all(40, PROMPT, 20)
        rig.step()
        begun.append(len(rig._loads()))
    assert begun == [40, 40]


@cache
def vllms(tiny_llama, role):
    return all_done(rig_of(tiny_llama, None, role))


def all_done(rig):
    rig.add_all(100, PROMPT, OUTPUT)
    rig.run()
    assert rig.all_whole(100, OUTPUT)
    return rig


def test_what_is_loaded_is_written_to_memory(tiny_llama, role):
    rig = rig_of(tiny_llama, "SLA", role)
    for k in range(4):
        rig.add(f"r{k}", prompt=PROMPT, output=10)
    rig.run()
    assert rig.exchange().written_tokens == 4 * (PROMPT + 9)
