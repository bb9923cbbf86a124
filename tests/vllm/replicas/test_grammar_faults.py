"""Why the engine ended a request with a grammar: its client's doing, or the engine's own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm import LLM, SamplingParams
from vllm.outputs import CompletionOutput
from vllm.sampling_params import StructuredOutputsParams

from replicas.workarounds.grammar_faults import FAULT
from tests.vllm.engines import engine

pytestmark = pytest.mark.engine

WORDS = {"choice": ["river", "jar"]}


@pytest.fixture(scope="module")
def llm(tiny_llama: Path) -> Iterator[LLM]:
    with engine(tiny_llama, ours=True) as made:
        # vLLM keeps to the compiler that the first request needed.
        assert ended(made, WORDS).finish_reason == "stop"
        yield made


def ended(llm: LLM, grammar: dict[str, Any], **fields: Any) -> CompletionOutput:
    params = SamplingParams(
        max_tokens=8, structured_outputs=StructuredOutputsParams(**grammar), **fields
    )
    (answer,) = llm.generate(["a river"], params, use_tqdm=False)
    return answer.outputs[0]


@pytest.mark.parametrize(
    ("grammar", "fields", "why"),
    [
        (
            WORDS,
            {"allowed_token_ids": [5, 6]},
            "the grammar allows none of the tokens that allowed_token_ids leave",
        ),
        (
            WORDS,
            {"bad_words": ["river", "jar", "r", "j", "ri", "ja"]},
            "the grammar allows none of the tokens that bad_words leave",
        ),
        ({"grammar": "root ::= root"}, {}, "the grammar allows no token"),
        ({"regex": r"[^\s\S]"}, {}, "the grammar allows no token"),
        # The frontend's other compiler, llguidance, takes this one; xgrammar does not.
        ({"regex": r"\p{L}"}, {}, "the grammar cannot be compiled: "),
        ({"json": {"type": "object", "patternProperties": {"^(a": {}}}}, {}, "the grammar cannot"),
    ],
)
def test_a_grammar_that_cannot_be_kept_to_is_told_from_a_failure_of_the_engine(
    llm: LLM, grammar: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    output = ended(llm, grammar, **fields)
    assert output.finish_reason == "error"  # by vLLM's own doing: its API says 500
    assert str(output.stop_reason).startswith(f"{FAULT}{why}")
    assert len(str(output.stop_reason)) < 200
    assert ended(llm, WORDS).finish_reason == "stop"
