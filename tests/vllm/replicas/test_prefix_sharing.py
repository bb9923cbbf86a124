"""Which of its KV blocks a request shares, in vLLM's real block pool."""

import pytest
from vllm.config import KVTransferConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request

from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.connector import IdleConnector
from tests.vllm.harness import BLOCK, Rig, batching, engine_config

# Ten full blocks, and a token that is in none.
PROMPT = 10 * BLOCK + 1


@pytest.fixture
def rig(tiny_llama):
    return Rig.led(tiny_llama, blocks=200, enable_prefix_caching=True)


def waiting(rig: Rig, request_id: str, prompt: int = PROMPT) -> Request:
    return rig.add(request_id, prompt=prompt, output=40)


class Stored(IdleConnector):
    """Holds all but the last block of any prompt, and loads that within the step."""

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return max((request.num_tokens - 1) // BLOCK * BLOCK - num_computed_tokens, 0), False


STORED = {
    "kv_transfer_config": KVTransferConfig(
        kv_connector="Stored", kv_role="kv_both", kv_connector_module_path=__name__
    )
}


@pytest.mark.parametrize(
    ("layers", "options"),
    [
        ({}, {"enable_prefix_caching": True}),
        ({"window": 64}, {"enable_prefix_caching": True}),
        ({"states": True}, {"enable_prefix_caching": True}),
        ({"only_window": 64}, {"enable_prefix_caching": True}),
        ({}, STORED),
        ({}, {"enable_prefix_caching": True, **STORED}),
    ],
    ids=["whole", "window", "states", "only a window", "stored", "stored and cached"],
)
def test_who_needs_little_beside_what_is_there_starts_as_early_as_under_vllm(
    tiny_llama, layers, options
):
    """A prefix of 40 blocks and a block of one's own, with a budget for less than one prompt."""
    ours = batching(policy="adaptive", sla={"itl_ms": 50})
    prefix, started = [1] * 40 * BLOCK, []
    for scheduler, batch in ((DynamicBatchScheduler, ours), (AsyncScheduler, {})):
        config = engine_config(tiny_llama, additional_config=batch, **options)
        rig = Rig(config, scheduler, **layers)
        rig.add("first", [*prefix, *[2] * BLOCK], output=100)
        rig.go_on(20)
        for k in range(8):
            rig.add(f"r{k}", [*prefix, *[10 + k] * BLOCK], output=40)
        started.append([len(rig.step().scheduled_new_reqs) for _ in range(3)])
        rig.run()
        assert rig.all_whole(8, 40)
    assert started[0] == started[1]
    assert sum(started[0]) == 8


def test_a_report_tells_what_is_cached_apart_from_what_is_computed(rig):
    waiting(rig, "a")
    waiting(rig, "b")
    report = rig.exchange()
    assert report.prompt_backlog_tokens == report.kv_backlog_tokens == 2 * PROMPT
    rig.step()
    while rig.scheduler.running:
        rig.step()
    report = rig.exchange()
    assert (report.lengths.n, report.lengths.input) == (2, 2 * PROMPT)
    first = report.lengths.cached  # both were scheduled in one step, or the second found the first
    assert report.written_tokens == 2 * PROMPT - first + 2 * 39
    waiting(rig, "c")
    report = rig.exchange()
    assert (report.prompt_backlog_tokens, report.kv_backlog_tokens) == (1, PROMPT)
    while rig.scheduler.requests:
        rig.step()
    assert rig.exchange().lengths.cached == first + 10 * BLOCK
