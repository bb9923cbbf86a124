"""A real model's answers: sentences, and the same ones whichever scheduler cuts up the work."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from vllm import LLM, CompletionOutput, RequestOutput, SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler

from serve_app.demo.gguf_model import TEMPERATURE
from serve_app.demo.model_folder import WEIGHTS, sha256
from tests.vllm.engines import Records, engine, generate, scheduler

pytestmark = pytest.mark.engine

# As the pinned versions of transformers, gguf and safetensors write the file.
WEIGHTS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
QUESTIONS = (
    "What is the capital of France?",
    "Name the four seasons of the year.",
    "How do plants make their food?",
    "What does the heart do?",
    "What is a computer program?",
    "What is the chemical symbol of gold?",
    "What is the ocean?",
    "Explain in two sentences what a volcano is.",
    "What is the boiling point of water at sea level?",
    "What does a librarian do?",
)
LETTER = (
    "Dear Anna, the house by the harbour is ready at last. We painted the kitchen yellow, and the"
    " two rooms upstairs white, as you wished. The old stove was too heavy for the stairs, so four"
    " men from the bakery carried it out through the garden. My brother Tom mended the roof before"
    " the rain came, and since then not a drop has fallen on the beds. In the evening we sit on the"
    " bench in front of the door and count the boats that come home. Yesterday there were eleven,"
    " the day before only nine, because of the wind. The cat has found her place on the window"
    " sill and does not leave it, not even for fish. Bring warm clothes with you, the nights are"
    " cold, and bring the blue lamp that stood on your table, since the light in the hall is weak."
    " The train from the city arrives at noon, and I shall wait for you at the station with the"
    " green car. Your friend, Maria. "
)
ASKED = (*QUESTIONS, f"Summarize this letter: {LETTER}", f"Who mended the roof? {LETTER}")
PARAMS = SamplingParams(temperature=0, max_tokens=48, logprobs=5)
# In bfloat16 a processor with AMX answers otherwise than one without.
DTYPE = "float32"
# How a prompt is cut moves sums in their last digits only.
BOUND_NATS = 0.05
IM_END = 2


class Own(Records, Scheduler):
    """vLLM's own."""


ADAPTIVE = {"policy": "adaptive", "sla": {"itl_ms": 60}, "max_running": {"min": 12}}
# Each cuts prompts: by its small token budget, by limits that move, to keep the SLA.
SCHEDULERS: dict[str, dict[str, Any]] = {
    "own": {"ours": False, "scheduler_cls": Own, "max_num_batched_tokens": 32},
    "static": {"ours": True},
    "adaptive": {
        "ours": True,
        "additional_config": {"brimful": {"batching": ADAPTIVE}},
        "max_num_batched_tokens": 1024,
    },
}
LITTLE_MEMORY = {"num_gpu_blocks_override": 18}


@pytest.fixture(scope="module")
def prompts(small_model: Path) -> list[str]:
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        for text in ASKED
    ]


@pytest.fixture(scope="module")
def whole(small_model: Path, prompts: list[str]) -> list[RequestOutput]:
    """Answers of vLLM alone, with every prompt in one piece and memory for all."""
    with engine(
        small_model,
        ours=False,
        scheduler_cls=Own,
        dtype=DTYPE,
        max_num_batched_tokens=1024,
    ) as llm:
        answers = generate(llm, prompts, PARAMS)
        assert not cut(llm)
        assert not preempted(llm)
        assert llm.get_default_sampling_params().temperature == TEMPERATURE
    return answers


def cut(llm: LLM) -> set[str]:
    """Requests whose prompt did not start in one piece."""
    return {
        new.req_id
        for output, _ in scheduler(llm).steps
        for new in output.scheduled_new_reqs
        if new.num_computed_tokens + output.num_scheduled_tokens[new.req_id]
        < len(new.prompt_token_ids)
    }


def preempted(llm: LLM) -> set[str]:
    """Requests that lost their memory."""
    return {lost for output, _ in scheduler(llm).steps for lost in output.preempted_req_ids or ()}


def test_the_weights_are_the_known_ones(small_model: Path) -> None:
    assert sha256(small_model / WEIGHTS) == WEIGHTS_SHA256


def test_an_answer_is_a_sentence_and_ends_where_the_model_ends_it(
    whole: list[RequestOutput],
) -> None:
    answer = whole[0].outputs[0]
    assert answer.text == "The capital of France is Paris."
    assert answer.finish_reason == "stop"
    assert answer.token_ids[-1] == IM_END


@pytest.mark.parametrize("name", SCHEDULERS)
def test_chunks_and_preemptions_leave_the_answers_as_they_are(
    name: str, small_model: Path, prompts: list[str], whole: list[RequestOutput]
) -> None:
    settings = {"dtype": DTYPE, **SCHEDULERS[name], **LITTLE_MEMORY}
    with engine(small_model, **settings) as llm:
        if name == "adaptive":  # its limits are its own
            answers = llm.generate(prompts, PARAMS, use_tqdm=False)
        else:
            answers = generate(llm, prompts, PARAMS)
        assert cut(llm)
        assert preempted(llm)
    for expected, answer in zip(whole, answers, strict=True):
        check_same(expected.outputs[0], answer.outputs[0])


def check_same(one: CompletionOutput, other: CompletionOutput) -> None:
    """The same tokens, each about as likely; what follows a near tie may differ."""
    for index, (token, another) in enumerate(zip(one.token_ids, other.token_ids, strict=False)):
        first, second = one.logprobs[index], other.logprobs[index]
        assert first[token].logprob == pytest.approx(second[token].logprob, abs=BOUND_NATS)
        assert second[another].logprob == pytest.approx(first[another].logprob, abs=BOUND_NATS)
        if token != another:
            assert first[token].logprob - first[another].logprob <= BOUND_NATS
            assert second[another].logprob - second[token].logprob <= BOUND_NATS
            return
    assert one.token_ids == other.token_ids
