"""Limits go in and reports come out through vLLM's own engine process, under running streams."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from controller.records import BatchLimits, EngineReport, from_wire, to_wire
from replicas.engine import channel
from tests.vllm.emulated_app import started
from tests.vllm.harness import batching, limits

pytestmark = pytest.mark.engine

STREAMS = 64
TOKENS = 100


@pytest.fixture(scope="module")
async def llm(tiny_llama) -> AsyncIterator[AsyncLLM]:
    args = AsyncEngineArgs(
        model=str(tiny_llama),
        dtype="float32",
        enforce_eager=True,
        max_num_seqs=STREAMS,
        max_num_batched_tokens=1024,
        max_model_len=512,
        block_size=32,
        num_gpu_blocks_override=1024,
        scheduler_cls="replicas.scheduler.DynamicBatchScheduler",
        additional_config=batching(),
    )
    engine = started(args)
    yield engine
    engine.shutdown()


async def exchange(llm: AsyncLLM, pushed: BatchLimits | None = None) -> EngineReport:
    wire = await channel.exchange(llm, pushed and to_wire(pushed), "replica", "group")
    return from_wire(EngineReport, wire)


async def stream(llm: AsyncLLM, number: int) -> list[int]:
    """The tokens of one streamed answer, in the order they came."""
    params = SamplingParams(
        temperature=0, max_tokens=TOKENS, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )
    prompt = "The scheduler admits a request. " * (1 + number % 4)
    came: list[int] = []
    async for output in llm.generate(prompt, params, f"s{number}-{id(came)}"):
        came += output.outputs[0].token_ids
    return came


async def until(llm: AsyncLLM, condition, pushed: BatchLimits | None = None) -> EngineReport:
    """Exchange until the report meets the condition; the test's own time limit ends the wait."""
    while True:
        report = await exchange(llm, pushed)
        if condition(report):
            return report


@pytest.mark.timeout(300)
async def test_a_cap_of_one_under_64_running_streams_and_back(llm):
    alone = [await stream(llm, number) for number in range(4)]
    before = await exchange(llm, limits(STREAMS))
    streams = [asyncio.create_task(stream(llm, number)) for number in range(STREAMS)]
    await until(llm, lambda r: r.running == STREAMS)
    lowered = await exchange(llm, limits(1))
    late = [asyncio.create_task(stream(llm, number)) for number in range(4)]
    answers = await asyncio.gather(*streams)
    assert (lowered.max_running, lowered.reason, lowered.mode) == (1, "static", "leased")
    assert {len(answer) for answer in answers} == {TOKENS}
    assert answers[:4] == alone
    drained = await until(llm, lambda r: r.running <= 1)
    assert drained.preemptions == 0
    assert drained.overruled > before.overruled
    assert drained.finished - before.finished >= STREAMS
    late += [asyncio.create_task(stream(llm, number)) for number in range(STREAMS - 4)]
    raised = await until(llm, lambda r: r.running > 32, limits(STREAMS))
    answers = await asyncio.gather(*late)
    assert raised.max_running == STREAMS
    assert {len(answer) for answer in answers} == {TOKENS}
    last = await exchange(llm)
    assert last.finished == 4 + 2 * STREAMS
    assert (last.preemptions, last.running, last.waiting) == (0, 0, 0)
    assert last.ttft.n == last.finished
    assert last.itl.n == last.finished * (TOKENS - 1)


@pytest.mark.timeout(300)
async def test_a_call_that_fails_in_the_engine_says_so_and_the_engine_goes_on(llm):
    with pytest.raises(Exception, match="brimful_exchange"):
        await llm.engine_core.call_utility_async(channel.METHOD, {"lease_s": 1}, "replica", "group")
    assert len(await stream(llm, 0)) == TOKENS


async def test_another_batching_block_comes_in_under_running_streams_and_a_wrong_one_does_not(llm):
    streams = [asyncio.create_task(stream(llm, number)) for number in range(8)]
    await channel.configure(llm, {"policy": "adaptive", "sla": {"itl_ms": 500}})
    with pytest.raises(Exception, match=f"is above max_num_seqs={STREAMS}"):
        await channel.configure(llm, {"max_running": {"max": STREAMS + 1}})
    assert [len(tokens) for tokens in await asyncio.gather(*streams)] == [TOKENS] * 8
    await channel.configure(llm, {"policy": "static"})
