"""What requests may ask for, with prompts in parts and with KV memory lost: answers are the same.

Parts of a prompt and preemptions are rare in vLLM and the rule under an SLA. vLLM with whole
prompts and memory for all gives what each answer has to be.
"""

import json

import pytest
from vllm import SamplingParams
from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from tests.vllm.engines import engine, generate, report, scheduler

pytestmark = pytest.mark.engine

SENTENCE = "How many replicas does the queue need before the next minute is over ?"
WORDS = SENTENCE.split()
CHUNK = 48
DRAWN = {"temperature": 1.0, "seed": 42, "max_tokens": 48, "ignore_eos": True}
OBJECT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


class OneTokenOnly(AdapterLogitsProcessor):
    """A logits processor of a user's own: ``extra_args`` names the one token that is left."""

    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        only = (params.extra_args or {}).get("only")
        return None if only is None else lambda _, logits: _only(logits, only)


def _only(logits, token):
    kept = logits[token].clone()
    logits.fill_(float("-inf"))
    logits[token] = kept
    return logits


def structured(**how):
    return {"structured_outputs": StructuredOutputsParams(**how), "ignore_eos": False}


ASKED = {
    "greedy": {"temperature": 0.0},
    "seed": {},
    "another seed": {"seed": 7},
    "n": {"n": 3},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.2},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 1.5},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "logit_bias": {"logit_bias": {5: 30.0, 6: 30.0}},
    "bad_words": {"bad_words": ["queue", "the next"]},
    "min_tokens": {"min_tokens": 12, "ignore_eos": False, "logit_bias": {0: 9.0, 1: 9.0, 2: 9.0}},
    "stop": {"stop": ["e"], "include_stop_str_in_output": True},
    "stop_token_ids": {"stop_token_ids": list(range(40, 120))},
    "repetition_detection": {
        "temperature": 0.0,
        "logit_bias": {5: 100.0},
        "repetition_detection": RepetitionDetectionParams(
            max_pattern_size=2, min_pattern_size=1, min_count=4
        ),
    },
    "logprobs": {"logprobs": 3},
    "flat_logprobs": {"logprobs": 2, "prompt_logprobs": 1, "flat_logprobs": True},
    "prompt_logprobs": {"prompt_logprobs": 2},
    "detokenize": {"detokenize": False},
    "skip_special_tokens": {"skip_special_tokens": False, "spaces_between_special_tokens": False},
    "skip_reading_prefix_cache": {"skip_reading_prefix_cache": True},
    "extra_args": {"extra_args": {"only": 9}},
    "json": structured(json=json.dumps(OBJECT)),
    "regex": structured(regex=r"(yes|no): [0-9]{2,4}\."),
    "choice": structured(choice=["many replicas", "no replicas"]),
    "grammar": structured(grammar='root ::= "queue" | "minute " root'),
    "seed, structured and penalized": {"frequency_penalty": 1.0, **structured(regex="[a-z ]{9}")},
}
# vLLM itself answers neighbours of these wrongly (docs/upstream/vllm-batch-neighbours.md).
APART = {
    "allowed_token_ids": {"allowed_token_ids": [10, 11, 12, 13]},
    "logprob_token_ids": {"logprobs": 3, "logprob_token_ids": [4, 5, 6]},
}
# How answers leave the frontend, not what is computed; and what takes a model or engine of its own.
NOT_HERE = {"output_kind", "stream_interval", "skip_clone", "output_text_buffer_length"}
NOT_HERE |= {"thinking_token_budget", "routed_experts_prompt_start", "trace_decode_token_ids"}


def said(llm):
    """What the engine answers, by what was asked; each prompt takes several parts."""
    prompts = [" ".join([WORDS[i % 13], WORDS[i // 13], *WORDS * 8]) for i in range(len(ASKED))]
    wanted = [SamplingParams(**DRAWN | asked) for asked in ASKED.values()]
    found = dict(zip(ASKED, map(told, generate(llm, prompts, wanted)), strict=True))
    for name, asked in APART.items():
        alike = SamplingParams(**DRAWN | asked)
        found[name] = [told(one) for one in generate(llm, prompts[:6], alike)]
    return found


def told(output):
    """All that an answer says, log-probabilities rounded."""
    answers = [
        (a.token_ids, a.text, a.finish_reason, a.stop_reason, rounded(a.logprobs))
        for a in output.outputs
    ]
    return answers, rounded(output.prompt_logprobs)


def rounded(logprobs):
    if logprobs is None:
        return None
    return [
        of_one and {token: round(found.logprob, 3) for token, found in of_one.items()}
        for of_one in list(logprobs)
    ]


@pytest.fixture(scope="module")
def arguments(tiny_llama):
    return {
        "model": tiny_llama,
        "enable_prefix_caching": False,
        "logits_processors": [OneTokenOnly],
    }


@pytest.fixture(scope="module")
def whole(arguments):
    """vLLM's answers if no prompt is cut and no request loses KV memory."""
    with engine(ours=False, max_num_batched_tokens=8192, max_num_seqs=64, **arguments) as llm:
        return said(llm)


def test_every_sampling_parameter_of_vllm_is_asked_for():
    used = {field for asked in (DRAWN, *(ASKED | APART).values()) for field in asked}
    fields = {name for name in SamplingParams.__struct_fields__ if not name.startswith("_")}
    assert fields - used == NOT_HERE


@pytest.mark.parametrize("async_scheduling", [False, True], ids=["sync", "async"])
def test_answers_in_parts_and_of_preempted_requests_are_those_of_whole_prompts(
    arguments, whole, async_scheduling
):
    parts = {"max_num_batched_tokens": CHUNK, "num_gpu_blocks_override": 24}
    with engine(ours=True, async_scheduling=async_scheduling, **arguments | parts) as llm:
        answers = said(llm)
        cut = {r for step, _ in scheduler(llm).steps for r in step.scheduled_cached_reqs.req_ids}
        preempted = report(llm).preemptions
    assert cut
    assert preempted > 0
    assert answers == whole


def test_adapters_answer_as_with_whole_prompts(tiny_llama, adapter):
    found = {}
    for ours, tokens, blocks in ((False, 8192, 512), (True, CHUNK, 24)):
        size = {"max_num_batched_tokens": tokens, "num_gpu_blocks_override": blocks}
        lora = {"enable_lora": True, "max_lora_rank": 8, "enable_prefix_caching": False}
        with engine(ours=ours, model=tiny_llama, **size, **lora) as llm:
            prompts = [" ".join([WORDS[i], *WORDS * 8]) for i in range(8)]
            outputs = generate(llm, prompts, SamplingParams(**DRAWN), lora_request=[adapter] * 8)
            found[ours] = [told(one) for one in outputs]
            assert not ours or report(llm).preemptions > 0
    assert found[True] == found[False]
