"""Prefix caching and drafts under a cap that moves: greedy answers are those of vLLM alone."""

import pytest
from vllm import SamplingParams

from tests.vllm.engines import engine, generate, report, scheduler, tokens

pytestmark = pytest.mark.engine

SENTENCE = "How many replicas does the queue need before the next minute is over ?"
WORDS = SENTENCE.split()
PROMPTS = [" ".join(WORDS[i % 5 :] * (1 + i % 4)) for i in range(24)]
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def plain(tiny_llama):
    with engine(ours=False, model=tiny_llama, enable_prefix_caching=True) as llm:
        yield llm


@pytest.mark.parametrize("async_scheduling", [False, True], ids=["sync", "async"])
def test_prefix_caching(plain, tiny_llama, async_scheduling):
    shared = " ".join(WORDS * 4)
    prompts = [f"{shared} {word}" for word in WORDS]
    caching = {"enable_prefix_caching": True, "async_scheduling": async_scheduling}
    with engine(ours=True, model=tiny_llama, **caching) as llm:
        generate(llm, [shared], GREEDY)
        answers = generate(llm, prompts, GREEDY)
        running = [count for _, count in scheduler(llm).steps]
        final = report(llm)
    assert (min(running), max(running)) == (1, len(WORDS))  # the cap moved
    assert all(output.num_cached_tokens >= 32 for output in answers)
    assert tokens(answers) == tokens(generate(plain, prompts, GREEDY))
    assert final.kv_used_tokens == 0  # what only the cache holds counts as free


@pytest.mark.parametrize("by_batch", [None, [[1, 2, 3], [3, 64, 1]]], ids=["fixed", "by batch"])
def test_ngram_speculative_decoding(plain, tiny_llama, by_batch):
    drafting = {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
        "num_speculative_tokens_per_batch_size": by_batch,
    }
    with engine(ours=True, model=tiny_llama, speculative_config=drafting) as llm:
        answers = tokens(generate(llm, PROMPTS, GREEDY))
        final = report(llm)
    assert answers == tokens(generate(plain, PROMPTS, GREEDY))
    assert final.engine.tokens_per_decode == 4
    # Accepted drafts: fewer decodes than tokens after the first of each request.
    assert final.itl.n < len(PROMPTS) * (40 - 1)
    assert final.preemptions == 0
