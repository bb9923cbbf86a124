"""Each feature of vLLM under a cap that moves: it works, and greedy answers are vLLM's own."""

import re

import pytest
from vllm import SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from tests.vllm.engines import Recording, engine, generate, report, scheduler, tokens

pytestmark = pytest.mark.engine

SENTENCE = "How many replicas does the queue need before the next minute is over ?"
WORDS = SENTENCE.split()
PROMPTS = [" ".join(WORDS[i % 5 :] * (1 + i % 4)) for i in range(24)]
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


@pytest.fixture(scope="module")
def everything(tiny_llama):
    """Engine arguments that switch most features on at once."""
    return {
        "model": tiny_llama,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "scheduling_policy": "priority",
        "enable_lora": True,
        "max_lora_rank": 8,
        "max_loras": 2,
    }


@pytest.fixture(scope="module")
def plain(everything):
    with engine(ours=False, **everything) as llm:
        yield llm


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def moved(request, everything):
    """Our scheduler, with async scheduling off and on."""
    with engine(ours=True, async_scheduling=request.param, **everything) as llm:
        yield llm


@pytest.fixture(autouse=True)
def forgotten(request):
    """No test profits from what another one left in the prefix cache or the record."""
    for name in ("plain", "moved"):
        if name in request.fixturenames:
            llm = request.getfixturevalue(name)
            llm.reset_prefix_cache()
            if name == "moved":
                scheduler(llm).steps.clear()


def test_the_cap_moves_under_running_requests_and_nothing_is_lost(plain, moved):
    before = report(moved)
    answers = tokens(generate(moved, PROMPTS, greedy(40)))
    after = report(moved)
    running = [count for _, count in scheduler(moved).steps]
    assert answers == tokens(generate(plain, PROMPTS, greedy(40)))
    assert {len(answer) for answer in answers} == {40}
    assert after.finished - before.finished == len(PROMPTS)
    assert after.preemptions == 0
    assert after.overruled > before.overruled
    assert min(running) <= 2
    assert max(running) == 16


def test_chunked_prefill(plain, moved):
    long = [" ".join(WORDS * 6), *PROMPTS[:3]]
    answers = generate(moved, long, GREEDY)
    chunks = [
        step.num_scheduled_tokens[new]
        for step, _ in scheduler(moved).steps
        for new in step.num_scheduled_tokens
        if new.split("-")[0] == answers[0].request_id.split("-")[0]
        and step.num_scheduled_tokens[new] > 1
    ]
    assert len(chunks) > 1
    assert sum(chunks) == len(answers[0].prompt_token_ids)
    assert tokens(answers) == tokens(generate(plain, long, GREEDY))


def test_prefix_caching(plain, moved):
    shared = " ".join(WORDS * 4)
    prompts = [f"{shared} {word}" for word in WORDS]
    generate(moved, [shared], GREEDY)
    answers = generate(moved, prompts, GREEDY)
    assert all(output.num_cached_tokens >= 32 for output in answers)
    assert tokens(answers) == tokens(generate(plain, prompts, GREEDY))
    assert report(moved).kv_used_tokens == 0  # what only the cache holds counts as free


def test_structured_output(plain, moved):
    pattern = r"(yes|no): [0-9]{2,4}\."
    asked = [
        SamplingParams(
            temperature=0,
            max_tokens=40,
            structured_outputs=StructuredOutputsParams(regex=pattern) if i % 2 else None,
        )
        for i in range(12)
    ]
    answers = generate(moved, PROMPTS[:12], asked)
    texts = [output.outputs[0].text for output in answers]
    assert all(re.fullmatch(pattern, text) for text in texts[1::2])
    assert tokens(answers) == tokens(generate(plain, PROMPTS[:12], asked))


def test_lora(plain, moved, adapter):
    mixed = [adapter if i % 2 else None for i in range(12)]
    answers = tokens(generate(moved, PROMPTS[:12], GREEDY, lora_request=mixed))
    base = tokens(generate(moved, PROMPTS[:12], GREEDY))
    assert answers[0::2] == base[0::2]
    assert all(a != b for a, b in zip(answers[1::2], base[1::2], strict=True))
    assert answers == tokens(generate(plain, PROMPTS[:12], GREEDY, lora_request=mixed))


def test_priority_policy(plain, moved):
    ranks = [i * 7 % 24 for i in range(24)]
    answers = generate(moved, PROMPTS, GREEDY, priority=ranks)
    started = [
        int(new.req_id.split("-")[0])
        for step, _ in scheduler(moved).steps
        for new in step.scheduled_new_reqs
    ]
    first = min(started)
    assert [ranks[number - first] for number in started] == sorted(ranks)
    assert tokens(answers) == tokens(generate(plain, PROMPTS, GREEDY, priority=ranks))


def test_preempted_requests_come_back_whole(plain, tiny_llama):
    expected = tokens(generate(plain, PROMPTS, greedy(60)))
    with engine(ours=True, model=tiny_llama, enable_prefix_caching=False) as llm:
        # All but 16 of 512 blocks of KV memory are taken away.
        pool = scheduler(llm).kv_cache_manager.block_pool
        taken = pool.get_new_blocks(pool.get_num_free_blocks() - 16)
        answers = tokens(generate(llm, PROMPTS, greedy(60)))
        assert report(llm).preemptions > 0
        pool.free_blocks(taken)
    assert answers == expected


@pytest.mark.parametrize("by_batch", [None, [[1, 2, 3], [3, 64, 1]]], ids=["fixed", "by batch"])
def test_ngram_speculative_decoding(plain, tiny_llama, by_batch):
    drafting = {
        "model": tiny_llama,
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
            "num_speculative_tokens_per_batch_size": by_batch,
        },
    }
    with engine(ours=True, **drafting) as llm:
        answers = tokens(generate(llm, PROMPTS, greedy(40)))
        drafted = [step for step, _ in scheduler(llm).steps if step.scheduled_spec_decode_tokens]
        final = report(llm)
    assert answers == tokens(generate(plain, PROMPTS, greedy(40)))
    assert drafted
    assert final.engine.tokens_per_decode == 4
    # Accepted drafts: fewer decodes than tokens after the first of each request.
    assert final.itl.n < len(PROMPTS) * (40 - 1)
    assert final.preemptions == 0


@pytest.mark.parametrize("moved", [True], indirect=True, ids=["async"])
def test_with_async_scheduling_two_steps_really_are_in_flight(moved):
    core = moved.llm_engine.engine_core.engine_core
    assert core.async_scheduling
    assert core.batch_queue_size == 2
    assert isinstance(core.scheduler, Recording)


def test_a_mixture_of_experts(tiny_mixtral):
    # Workers of their own: process groups of this one have no place for experts.
    mixture = {"model": tiny_mixtral, "distributed_executor_backend": "mp"}
    with engine(ours=False, **mixture) as llm:
        expected = tokens(generate(llm, PROMPTS, GREEDY))
    with engine(ours=True, **mixture) as llm:
        answers = tokens(generate(llm, PROMPTS, GREEDY))
        final = report(llm)
    assert answers == expected
    assert (final.finished, final.preemptions) == (len(PROMPTS), 0)
