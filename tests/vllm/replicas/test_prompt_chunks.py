"""How prompts are cut, in vLLM's own scheduler: long ones with short ones, and blocks of states.

A step takes 20 ms and 1 ms for each token, so an SLA of 50 ms leaves room for 30 tokens.
"""

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request

from controller.models.step_time import StepModel
from controller.records import Reserve
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
    """Running requests with their first token."""
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
