"""Ours against vLLM's own scheduler over random lives (``--lives 1000`` for more)."""

from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from controller.switch import Switch
from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.harness import batching, limits
from tests.vllm.lives import Life, Lived, lived

SLA = {"itl_ms": 20, "ttft_ms": 500}
FAR = {"ttft_ms": 8e7}  # an SLA that nothing comes near
EQUAL: dict[str, dict[str, Any]] = {
    "static": {"policy": "static"},
    "not enforced": {"policy": "adaptive", "sla": SLA, "enforce": False},
    "paper, not enforced": {"policy": "paper", "sla": SLA, "step_aside": True, "enforce": False},
    "switched off": {"policy": "adaptive", "sla": SLA},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(metafunc.config.getoption("lives")))


def ours(tiny_llama, life: Life, **block: Any) -> Lived:
    return Lived(tiny_llama, life, DynamicBatchScheduler, batching(**block))


def theirs(tiny_llama, life: Life) -> Lived:
    cls = AsyncScheduler if life.sizes["async_scheduling"] else Scheduler
    return Lived(tiny_llama, life, cls, {})


def test_every_output_is_vllms_where_nothing_is_enforced(tiny_llama, number):
    name = list(EQUAL)[number % len(EQUAL)]
    life = Life(number)
    mine, own = ours(tiny_llama, life, **EQUAL[name]), theirs(tiny_llama, life)
    if name == "switched off":
        mine.exchange(limits(6, 64, switches=(Switch(1, False),)))
    for step, (decided, wanted) in enumerate(lived(life, mine, own)):
        assert decided == wanted, (name, step)
    assert mine.told == own.told


def test_where_nothing_binds_never_fewer_tokens_are_scheduled(tiny_llama, number):
    life, sla = Life(number, roomy=True), FAR if number % 2 else {}
    mine, own = ours(tiny_llama, life, policy="adaptive", sla=sla), theirs(tiny_llama, life)
    ahead = 0
    for step, (decided, wanted) in enumerate(lived(life, mine, own)):
        ahead += decided.total_num_scheduled_tokens - wanted.total_num_scheduled_tokens
        assert ahead >= 0, step
    # vLLM loses a stop under way where it resets its prefix cache a step ahead.
    assert mine.off() == own.off()


def test_whatever_binds_all_are_answered_and_no_error_is_our_own(tiny_llama, number):
    life, policy = Life(number), "paper" if number % 3 == 2 else "adaptive"
    mine = ours(tiny_llama, life, policy=policy, sla=SLA)
    for (decided,) in lived(life, mine):
        assert decided.total_num_scheduled_tokens <= life.sizes["max_num_batched_tokens"]
        assert len(mine.scheduler.running) <= life.sizes["max_num_seqs"]
    left = mine.scheduler.has_unfinished_requests()
    if left or mine.off():  # by vLLM itself: it loses sessions, and stops under way at a reset
        own = theirs(tiny_llama, life)
        lived(life, own)
        assert (left, mine.off()) == (own.scheduler.has_unfinished_requests(), own.off())
    if not left:
        blocks = mine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        assert blocks == life.sizes["blocks"] - 1
