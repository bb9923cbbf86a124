"""Why the engine ended a request with a grammar: its client's doing, or the engine's own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm import LLM, SamplingParams
from vllm.outputs import CompletionOutput
from vllm.sampling_params import StructuredOutputsParams

from replicas.emulator.executor import EmulatedExecutor
from replicas.workarounds.grammar_faults import FAULT, GrammarFaults
from tests.vllm.engines import engine, scheduler
from tests.vllm.harness import Rig, batching, engine_config

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


@pytest.mark.parametrize("grammar", [{"grammar": "root ::= root"}, {"regex": r"\p{L}"}])
def test_where_nobody_makes_an_answer_of_the_reason_vllms_own_stays(llm, monkeypatch, grammar):
    monkeypatch.setattr(scheduler(llm), "reports_grammar_errors", False)
    output = ended(llm, grammar)
    assert (output.finish_reason, output.stop_reason) == ("error", None)


@pytest.mark.parametrize("leased", [True, False])
def test_outside_of_ray_nobody_makes_an_answer_of_it(tiny_llama: Path, leased: bool) -> None:
    brimful = {**batching()["brimful"], "leased": leased}
    config = engine_config(tiny_llama, additional_config={"brimful": brimful})
    assert Rig(config).scheduler.reports_grammar_errors is leased


def test_a_reason_that_cannot_be_found_ends_no_engine(llm, monkeypatch):
    def fails(scheduler: GrammarFaults, request: Any) -> str:
        raise RuntimeError("GrammarMatcher has terminated")

    monkeypatch.setattr(GrammarFaults, "_rejected", fails)
    # As in production: errors end a replay, and a test.
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    monkeypatch.setattr(scheduler.guard, "_fatal", False)
    output = ended(llm, WORDS, allowed_token_ids=[5, 6])
    assert (output.finish_reason, output.stop_reason) == ("error", None)
    assert ended(llm, WORDS).finish_reason == "stop"


class Careless(EmulatedExecutor):
    """Draws any token, whatever a grammar allows."""

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        return super().sample_tokens(None, non_block)


# With these the grammar has tokens left, too.
OWN: list[dict[str, Any]] = [{}, {"min_tokens": 1}, {"bad_words": ["river"]}]


def test_an_engine_that_does_not_keep_to_a_grammar_has_failed_itself(tiny_llama: Path) -> None:
    settings = batching()
    settings["brimful"]["emulate"] = {"profile": "paper-fig3", "time_scale": 0.001}
    with engine(
        tiny_llama, ours=True, additional_config=settings, distributed_executor_backend=Careless
    ) as llm:
        outputs = [ended(llm, {"regex": "[0-9]{6}"}, **own) for own in OWN]
    assert [(o.finish_reason, o.stop_reason) for o in outputs] == [("error", None)] * len(OWN)
