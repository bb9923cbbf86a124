"""The emulated accelerator's own clock: asleep for what the profile says, and no longer."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from replicas.emulator.executor import FIRST_WORD, EmulatedExecutor, Pace
from serve_app.demo.client import END, LENGTH
from tests.vllm.engines import engine, scheduler
from tests.vllm.harness import batching


class Clock:
    """Time that only sleeping, and the host's work, moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(clock, clock.work)


def test_the_first_step_takes_its_time(clock: Clock, pace: Pace) -> None:
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.05)


def test_the_hosts_work_between_steps_hides_in_them(clock: Clock, pace: Pace) -> None:
    for _ in range(10):
        pace.step(0.05)
        clock.work(0.04)
    assert clock.now_s == pytest.approx(100 + 10 * 0.05 + 0.04)


def test_what_the_host_takes_beyond_a_step_is_lost_and_no_more(clock: Clock, pace: Pace) -> None:
    pace.step(0.05)
    clock.work(0.07)
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.12)  # it is over by now
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.17)


def test_a_short_pause_without_requests_shortens_nothing(clock: Clock, pace: Pace) -> None:
    pace.step(0.05)
    pace.idle()
    clock.work(0.03)
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.13)


@pytest.mark.engine
def test_an_answer_ends_where_its_client_told_the_accelerator(tiny_llama: Path) -> None:
    # KV memory for 480 tokens: some lose their blocks on the way, and go on where they were.
    settings = batching()
    settings["brimful"]["emulate"] = {
        "profile": "paper-fig3",
        "time_scale": 0.001,
        "disturbances": {
            "pauses": [{"share": 0.1, "mean_s": 0.05}],
            "slow": [{"share": 0.2, "factor": 2, "mean_s": 1}],
            "encoder": {"share": 0.5, "duration_s": 0.08},
        },
    }
    asked = [5 + 7 * k for k in range(16)]
    params = [
        SamplingParams(
            max_tokens=256, ignore_eos=True, stop_token_ids=[END], extra_args={LENGTH: n}
        )
        for n in asked
    ]
    with engine(
        tiny_llama,
        ours=True,
        additional_config=settings,
        distributed_executor_backend=EmulatedExecutor,
        num_gpu_blocks_override=16,
        max_model_len=384,
    ) as llm:
        answers = llm.generate(["a river"] * 16, params, use_tqdm=False)
        report = scheduler(llm).exchange(None, "replica", "group")
    said = [list(a.outputs[0].token_ids) for a in answers]
    assert [len(tokens) for tokens in said] == asked
    assert all(tokens.index(END) == len(tokens) - 1 for tokens in said)
    assert {a.outputs[0].finish_reason for a in answers} == {"stop"}
    assert report["finished"] == 16 and report["preemptions"] > 0


@pytest.fixture(scope="module", params=[True, False], ids=["ours", "vllms"])
def llm(request, tiny_llama):
    settings = batching()
    settings["brimful"]["emulate"] = {"profile": "paper-fig3", "time_scale": 0.001}
    with engine(
        tiny_llama,
        ours=request.param,
        additional_config=settings,
        distributed_executor_backend=EmulatedExecutor,
    ) as made:
        yield made


SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


@pytest.mark.engine
def test_a_grammar_is_kept_to(llm):
    # Else the request ends with finish reason "error", and its client is answered 500.
    kinds = [
        StructuredOutputsParams(json={}),
        StructuredOutputsParams(json=SCHEMA, disable_any_whitespace=True),
        StructuredOutputsParams(regex="[abc]{3}"),
        StructuredOutputsParams(choice=["river", "jar"]),
    ]
    params = [SamplingParams(max_tokens=40, structured_outputs=kind) for kind in kinds]
    # The client's own end comes where the grammar allows it, and a request without one is as ever.
    end = {"stop_token_ids": [END], "ignore_eos": True}
    params += [
        SamplingParams(max_tokens=40, structured_outputs=kinds[2], extra_args={LENGTH: n}, **end)
        for n in (2, 4)
    ]
    params.append(SamplingParams(max_tokens=40, extra_args={LENGTH: 5}, **end))
    answers = llm.generate(["a river"] * len(params), params, use_tqdm=False)
    free, filled, letters, word, early, late, plain = [a.outputs[0] for a in answers]
    assert "error" not in {a.outputs[0].finish_reason for a in answers}
    assert free.text
    assert json.loads(filled.text)["a"] in (True, False)
    assert re.fullmatch("[abc]{3}", letters.text)
    assert word.text in ("river", "jar")
    assert {o.finish_reason for o in (filled, letters, word, late)} == {"stop"}
    assert re.fullmatch("[abc]{3}", early.text[:3]) and re.fullmatch("[abc]{3}", late.text[:3])
    assert len(plain.token_ids) == 5


@pytest.mark.engine
@pytest.mark.parametrize("llm", [True], indirect=True, ids=["ours"])
def test_each_token_is_as_likely_as_any_other(llm: LLM) -> None:
    asked = [(2, None), (None, None), (0, 0), (None, 3), (20, 1), (1, None)]
    params = [
        SamplingParams(max_tokens=4, ignore_eos=True, logprobs=sample, prompt_logprobs=prompt)
        for sample, prompt in asked
    ]
    params.append(SamplingParams(max_tokens=4, ignore_eos=True, logprob_token_ids=[5, 9]))
    prompts: list[Any] = ["a river " * 40] * len(params)
    prompts[2] = {"prompt_token_ids": [7]}  # nothing is before its only token
    words = llm.llm_engine.model_config.get_vocab_size() - FIRST_WORD
    answers = llm.generate(prompts, params, use_tqdm=False)
    even = pytest.approx(-math.log(words))
    for answer, (sample, prompt) in zip(answers, [*asked, (2, None)], strict=True):
        (output,) = answer.outputs
        if sample is None:
            assert output.logprobs is None
        else:
            assert output.cumulative_logprob == pytest.approx(-4 * math.log(words))
            for token, told in zip(output.token_ids, output.logprobs or (), strict=True):
                assert told[token].logprob == even
                assert sample <= len(told) <= sample + 1  # the drawn one may be among the others
        if prompt is None:
            assert answer.prompt_logprobs is None
        else:
            first, *rest = answer.prompt_logprobs or ()
            assert first is None
            for token, told in zip((answer.prompt_token_ids or ())[1:], rest, strict=True):
                assert told[token].logprob == even
                assert prompt <= len(told) <= prompt + 1
    assert all({5, 9} <= told.keys() for told in answers[-1].outputs[0].logprobs or ())
