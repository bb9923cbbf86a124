"""How prompts are cut, in vLLM's own scheduler: long ones beside short ones, and blocks of states.

A step takes 20 ms and 1 ms for each token, so an SLA of 50 ms leaves room for 30 tokens.
"""

import sys

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from controller.models.step_time import StepModel
from controller.records import Reserve
from replicas.engine import prompt_chunks
from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.harness import BLOCK, Rig, batching, block_hasher, engine_config, limits

SLA = batching(policy="adaptive", sla={"itl_ms": 50})


class Timed(Rig):
    """A rig whose steps take as long as their tokens do, and that counts which of them are late."""

    decoded = late = 0
    token_s = 0.001

    def _run(self, scheduled: SchedulerOutput):
        self.step_s = 0.02 + self.token_s * scheduled.total_num_scheduled_tokens
        tokens = sum(n == 1 for n in scheduled.num_scheduled_tokens.values())
        self.decoded += tokens
        self.late += tokens * (self.step_s > 0.05)
        return super()._run(scheduled)


def decoding(rig: Rig) -> set[str]:
    """Those that run and have their first token."""
    return {r.request_id for r in rig.scheduler.running if r.num_output_tokens}


def lead(rig: Timed) -> None:
    """The controller knows how long steps take, and wants them inside the SLA."""
    model = StepModel(0.02, rig.token_s, 0, rig.token_s, 0, 0)
    rig.exchange(
        limits(64, reason="sla", target_s=0.05, target_full_s=0.05, model=model, reserve=Reserve())
    )


def busy(tiny_llama, token_s: float = 0.001, **settings) -> Timed:
    """One whose step times are known, with one that decodes."""
    rig = Timed(engine_config(tiny_llama, additional_config=SLA, **settings))
    rig.token_s = token_s
    rig.add("first", prompt=40, output=900)
    rig.go_on(3)
    lead(rig)
    return rig


@pytest.fixture
def rig(tiny_llama):
    return busy(tiny_llama, long_prefill_token_threshold=64)


@pytest.mark.parametrize(
    ("settings", "steps"), [({"long_prefill_token_threshold": 64}, 20), ({}, 20)]
)
def test_short_prompts_get_past_a_long_one_and_no_decode_loses_its_token(
    tiny_llama, settings, steps
):
    rig = busy(tiny_llama, **settings)
    long = "long"
    rig.add(long, prompt=900, output=5)
    rig.go_on(2)
    for index in range(8):
        rig.add(f"short{index}", prompt=8, output=90)
    first_tokens = {}
    for step in range(400):
        before = decoding(rig)
        given = rig.step().num_scheduled_tokens
        assert {r: given.get(r) for r in before} == dict.fromkeys(before, 1)
        first_tokens |= dict.fromkeys(decoding(rig) - first_tokens.keys(), step)
        if long in first_tokens:
            break
    assert rig.late <= 0.01 * rig.decoded
    assert max(first_tokens[f"short{index}"] for index in range(8)) < steps
    assert 900 / 30 < first_tokens[long] < 100
    rig.step()
    moved = settings.get("long_prefill_token_threshold", 0)  # else it is as it was
    assert bool(rig.scheduler.scheduler_config.long_prefill_token_threshold) == bool(moved)


def test_what_begins_alike_is_computed_once(tiny_llama):
    rig = busy(tiny_llama, token_s=0.0003, enable_prefix_caching=True)
    document = [5 + k % 400 for k in range(40 * BLOCK)]

    def ask(name: str, tokens: list[int]) -> None:
        own = SamplingParams(max_tokens=3, ignore_eos=True)
        rig.scheduler.add_request(
            Request(name, tokens, own, None, arrival_time=rig.now_s, block_hasher=block_hasher())
        )

    for k in range(4):
        ask(f"long{k}", [*document, *[900 + k] * 20])
    computed = dict.fromkeys(["long0", "long1", "long2", "long3"], 0)
    most = 0
    for step in range(400):
        if step % 3 == 0:
            ask(f"short{step}", [2000 + step] * 8)
        given = rig.step().num_scheduled_tokens
        for name in computed.keys() & given.keys() - decoding(rig):
            computed[name] += given[name]
        most = max(most, sum(f"short{k}" in decoding(rig) for k in range(step)))
        if decoding(rig) >= {"long3"}:
            break
    # The document once, and of each its own tokens with what is left of a block.
    assert sum(computed.values()) < len(document) + 4 * (20 + BLOCK)
    assert most > 0


def test_a_decode_listed_behind_a_long_prompt_gets_its_token(tiny_llama):
    rig = Timed(engine_config(tiny_llama, additional_config=SLA))
    names = [f"r{index}" for index in range(3)]
    for name in names:
        rig.add(name, prompt=8, output=200)
    rig.step()
    rig.step()
    rig.add("long", prompt=900, output=5)
    rig.step()
    # As a prompt stands that went on no further than to an image, with others behind it.
    rig.scheduler.running.insert(0, rig.scheduler.running.pop())
    assert rig.scheduler.running[0].request_id == "long"
    given = rig.step().num_scheduled_tokens
    assert {name: given.get(name) for name in names} == dict.fromkeys(names, 1)
    # vLLM preempts the last of its list, so they stand as they did.
    assert [r.request_id for r in rig.scheduler.running] == ["long", *names]


def test_a_long_prompt_alone_gets_all_that_it_may(rig):
    rig.add("long", prompt=900, output=5)
    taken = [rig.step().num_scheduled_tokens["long"] for _ in range(20)]
    assert min(taken) > 15
    assert max(taken) <= 64


def test_the_threshold_is_as_the_engine_was_started_where_nobody_decides(tiny_llama):
    config = engine_config(
        tiny_llama,
        additional_config=batching(policy="adaptive", sla={"itl_ms": 50}, enforce=False),
        long_prefill_token_threshold=64,
    )
    rig = Timed(config)
    rig.add("a", prompt=200, output=5)
    rig.add("b", prompt=200, output=5)  # later versions do not limit one that is alone
    assert [rig.step().num_scheduled_tokens["a"] for _ in range(4)] == [64, 64, 64, 8]
    assert config.scheduler_config.long_prefill_token_threshold == 64


class EarlierVllm(DynamicBatchScheduler):
    """As vLLM before 0.27: whole blocks, or nothing."""

    def _mamba_block_aligned_split(self, request, num_new_tokens, *computed):
        start = request.num_computed_tokens + sum(computed)
        last = request.num_tokens - request.num_tokens % BLOCK
        if start >= max(request.num_prompt_tokens, request.num_tokens - 1):
            return num_new_tokens
        if start + num_new_tokens < last:
            return num_new_tokens // BLOCK * BLOCK
        return min(num_new_tokens, last - start) if start < last else num_new_tokens


def hybrid(tiny_llama, scheduler_cls=DynamicBatchScheduler) -> Timed:
    """20 decodes: the SLA leaves 10 tokens, less than a block, and both together are more."""
    config = engine_config(tiny_llama, additional_config=SLA, enable_prefix_caching=True)
    rig = Timed(config, scheduler_cls, states=True)
    rig.add_all(20, prompt=BLOCK, output=900)
    rig.go_on(3)
    lead(rig)
    assert len(decoding(rig)) == 20
    rig.add("next", prompt=6 * BLOCK + 3, output=5)
    return rig


def steps_to_first_token(rig: Timed, request_id: str, most: int = 2000) -> list[float]:
    took = []
    while request_id not in decoding(rig):
        rig.step()
        took.append(rig.step_s)
        assert len(took) < most
    return took


def test_a_prompt_gets_on_by_parts_of_a_block_inside_the_sla(tiny_llama):
    took = steps_to_first_token(hybrid(tiny_llama), "next")
    assert len(took) < 60
    assert max(took) <= 0.05


def test_where_only_whole_blocks_are_computed_patience_gives_one(tiny_llama, monkeypatch):
    monkeypatch.setattr(prompt_chunks, "PARTS_OF_BLOCKS", (sys.maxsize, 0))
    rig = hybrid(tiny_llama, EarlierVllm)
    assert rig.scheduler.governor.engine.whole_chunk_tokens == BLOCK
    took = steps_to_first_token(rig, "next")
    late = sum(one_s > 0.05 for one_s in took)
    assert late <= 0.02 * len(took) + 2


@pytest.mark.parametrize("itl_ms", [30, 1000])
def test_no_decode_goes_without_its_token_where_a_step_may_have_all_that_the_engine_has(
    tiny_llama, itl_ms
):
    # The short prompt starts beside the long one and stands behind it in vLLM's order. Steps of
    # 10 ms leave room for the engine's whole budget, and the long prompt would take all of it.
    block = batching(policy="adaptive", sla={"itl_ms": itl_ms})
    rig = Rig(engine_config(tiny_llama, additional_config=block, max_num_batched_tokens=64))
    rig.add("decodes", prompt=10, output=400)
    rig.go_on(70)
    rig.add("long", prompt=1000, output=5)
    rig.go_on(3)
    rig.add("short", prompt=20, output=50)
    while "short" not in decoding(rig):
        rig.step()
    assert "long" not in decoding(rig)
    while "long" not in decoding(rig):
        scheduled = rig.step().num_scheduled_tokens
        assert (scheduled["decodes"], scheduled["short"]) == (1, 1)
    assert [r.request_id for r in rig.scheduler.running] == ["decodes", "long", "short"]


def test_without_an_sla_the_running_ones_are_served_as_vllm_has_them(tiny_llama):
    block = {"additional_config": batching(policy="adaptive"), "max_num_batched_tokens": 64}
    rig = Rig(engine_config(tiny_llama, blocks=80, **block))
    rig.exchange(limits(64, reserve=Reserve()))
    rig.add("decodes", prompt=10, output=400)
    rig.go_on(3)
    rig.add("long", prompt=1000, output=5)
    rig.step()
    rig.scheduler.running.reverse()
    rig.add("next", prompt=30, output=5)  # memory may be short: the policy looks at all
    given = rig.step().num_scheduled_tokens
    assert "decodes" not in given and given["long"] == 64


def test_a_new_batching_block_in_the_middle_of_a_long_prompt_still_cuts_it(tiny_llama):
    rig = busy(tiny_llama)
    rig.add("long", prompt=900, output=5)
    before = rig.step().num_scheduled_tokens["long"]
    rig.scheduler.configure(SLA["brimful"]["batching"] | {"exchange_hz": 1.0})
    assert rig.step().num_scheduled_tokens["long"] <= 2 * before
