"""Engines die under their requests, and others go on with them: three real ones."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from replicas.admission.gate import ends_with_engine
from replicas.engine.settings import FailoverConfig
from replicas.server.carried import Accepted, Carried
from replicas.server.failover import Failover, NotMovedError
from tests.vllm.emulated_app import OURS, started
from tests.vllm.harness import batching

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TOKENS, BEFORE, WAIT_S = 120, 12, 3
SLOTS = 6  # fewer than requests: some have not begun when their engine dies


Kinds = dict[str, dict[str, Any]]


class Fleet:
    """Engines that call each other as replicas do, without Ray."""

    def __init__(self, model: Path, names: str) -> None:
        self.llms: dict[str, AsyncLLM] = {name: one_engine(model) for name in names}
        self.failovers = {}
        for name, llm in self.llms.items():
            config = FailoverConfig(wait_s=WAIT_S)
            self.failovers[name] = Failover(llm, config, name, self.call, self.others)
        self.carried = {name: Carried(llm, name, {}) for name, llm in self.llms.items()}

    async def call(self, moved: Any) -> AsyncIterator[Any]:
        if moved.request.external_req_id == "kills":
            yield Accepted(f"{len(moved.brimful_avoid)}")
            raise EngineDeadError
        name = next(one for one in self.llms if one not in moved.brimful_avoid)
        async for item in self.carried[name].carry_on(cloudpickle.loads(cloudpickle.dumps(moved))):
            yield cloudpickle.loads(cloudpickle.dumps(item))

    async def others(self) -> int:
        return len(self.llms) - 1

    def kill(self, name: str) -> None:
        (process,) = self.llms[name].engine_core.resources.engine_manager.processes
        os.kill(process.pid, signal.SIGKILL)


def one_engine(model: Path) -> AsyncLLM:
    args = AsyncEngineArgs(
        model=str(model),
        max_num_seqs=SLOTS,
        max_num_batched_tokens=64,
        max_model_len=512,
        block_size=32,
        num_gpu_blocks_override=512,
        scheduler_cls=OURS,
        additional_config=batching(),
        dtype="float32",  # so that a greedy answer does not depend on its batch
        enforce_eager=True,
    )
    return started(args)


@dataclass
class Answer:
    """What a client got."""

    texts: dict[int, str] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    logprobs: list[Any] = field(default_factory=list)
    ends: dict[int, Any] = field(default_factory=dict)
    prompt: Any = None
    error: Exception | None = None


async def ask(llm: AsyncLLM, name: str, answer: Answer, **params: Any) -> Answer:
    asked = {"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True, **params}
    # A greedy answer of a random model would be one token again and again.
    asked = {"repetition_penalty": 1.3, "skip_special_tokens": False, **asked}
    params = SamplingParams(**asked, output_kind=RequestOutputKind.DELTA)
    try:
        async for output in llm.generate(f"the river {name}", params, name):
            answer.prompt = answer.prompt or (output.prompt_token_ids, output.prompt_logprobs)
            for one in output.outputs:
                answer.texts[one.index] = answer.texts.get(one.index, "") + one.text
                answer.tokens.setdefault(one.index, []).extend(one.token_ids)
                answer.logprobs += one.logprobs or []
                if one.finish_reason:
                    answer.ends[one.index] = one.finish_reason, one.stop_reason
    except NotMovedError as error:
        answer.error = error
    return answer


def ask_all(llm: AsyncLLM, kinds: Kinds) -> tuple[dict[str, Answer], dict[str, asyncio.Task[Any]]]:
    answers = {name: Answer() for name in kinds}
    tasks = {n: asyncio.create_task(ask(llm, n, answers[n], **p)) for n, p in kinds.items()}
    return answers, tasks


async def until_begun(answers: dict[str, Answer], tokens: int, count: int = SLOTS - 1) -> None:
    """So many of them have so many tokens; the test's own time limit ends the wait."""
    while sum(len(a.tokens.get(0, ())) >= tokens for a in answers.values()) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def test_answers_of_engines_that_die_are_those_of_one_that_does_not(tiny_llama: Path) -> None:
    fleet = Fleet(tiny_llama, "abc")
    kinds: Kinds = {
        "plain": {},
        "logprobs": {"logprobs": 2, "prompt_logprobs": 1},
        "bias": {"logit_bias": {7: 1.0}},
        "least": {"min_tokens": TOKENS - 10},
        "grammar": {"structured_outputs": StructuredOutputsParams(regex="((a|b) (c|d) ){40}")},
        "second": {"max_tokens": TOKENS - 1},
        **{f"waits{k}": {"max_tokens": 40} for k in range(4)},
    }
    alone = {name: await ask(fleet.llms["c"], name, Answer(), **p) for name, p in kinds.items()}
    # Strings and tokens that end answers; the string is so long that it spans the seam.
    text = alone["plain"].texts[0]
    kinds["plain"] = {"stop": [text[len(text) // 20 : len(text) * 9 // 10]]}
    kinds["least"]["stop_token_ids"] = alone["least"].tokens[0][5:6]
    for name in ("plain", "least"):
        alone[name] = await ask(fleet.llms["c"], name, Answer(), **kinds[name])
    assert alone["plain"].ends[0][0] == "stop"

    answers, tasks = ask_all(fleet.llms["a"], kinds)
    await until_begun(answers, BEFORE)
    fleet.kill("a")
    await until_begun(answers, 3 * BEFORE)
    fleet.kill("b")
    await asyncio.gather(*tasks.values())
    for name, answer in answers.items():
        assert answer.error is None
        assert answer.tokens == alone[name].tokens, name
        assert (answer.texts, answer.ends) == (alone[name].texts, alone[name].ends), name
        assert answer.prompt[0] == alone[name].prompt[0]
    told, known = answers["logprobs"], alone["logprobs"]
    assert [list(one) for one in told.logprobs] == [list(one) for one in known.logprobs]
    assert told.prompt[1] is not None
    assert len(told.prompt[1]) == len(known.prompt[1])
    assert not fleet.llms["a"].output_processor.request_states
    failover = fleet.failovers["a"]
    assert len(failover.gaps_s) > len(kinds)  # some moved twice
    assert not failover.ended

    # What cannot go on says so.
    ends_with_engine.set(True)
    answers, tasks = ask_all(fleet.llms["c"], {"by_header": {}})
    ends_with_engine.set(False)
    others = {"penalty": {"presence_penalty": 0.5}, "waits": {}, "kills": {}}
    other, more = ask_all(fleet.llms["c"], others)
    answers, tasks = answers | other, tasks | more
    await until_begun(answers, 1, 4)
    fleet.kill("c")
    await asyncio.gather(*tasks.values())
    said = {name: str(answer.error) for name, answer in answers.items()}
    assert "x-brimful-failover" in said["by_header"]
    assert "presence_penalty" in said["penalty"]
    assert f"within {WAIT_S} s" in said["waits"]
    assert "2 other engines died" in said["kills"]
    assert fleet.failovers["c"].ended == {"cannot": 2, "waited": 1, "moved_out": 1}
