"""Engines die under their requests, and others go on with them: three real ones."""

import asyncio
import json
import math
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import httpx
import pytest
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from replicas.admission.gate import ends_with_engine
from replicas.engine.channel import exchange
from replicas.engine.settings import FailoverConfig
from replicas.server.carried import Accepted, Carried
from replicas.server.failover import Failover, NotMovedError
from tests.vllm.emulated_app import OURS, app_around, started
from tests.vllm.harness import batching
from tests.vllm.probes import CHAT, COMPLETIONS, HI, RESPONSES, TOOL

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TOKENS, BEFORE, WAIT_S = 120, 12, 3
SLOTS = 6  # fewer than requests: some have not begun when their engine dies


Kinds = dict[str, dict[str, Any]]


class Fleet:
    """Engines that call each other as replicas do, without Ray."""

    def __init__(self, llms: dict[str, AsyncLLM]) -> None:
        self.llms = llms
        self.failovers = {}
        for name, llm in llms.items():
            config = FailoverConfig(wait_s=WAIT_S)
            self.failovers[name] = Failover(llm, config, name, self.call, self.others)
        self.carried = {name: Carried(llm, name, {}) for name, llm in llms.items()}

    async def call(self, moved: Any) -> AsyncIterator[Any]:
        if moved.request.external_req_id == "kills":
            yield Accepted(f"{len(moved.brimful_avoid)}")
            raise EngineDeadError
        name = next(one for one in self.llms if one not in moved.brimful_avoid)
        async for item in self.carried[name].carry_on(cloudpickle.loads(cloudpickle.dumps(moved))):
            yield cloudpickle.loads(cloudpickle.dumps(item))

    async def others(self) -> int:
        return len(self.llms) - 1

    def kill(self, name: str, by: signal.Signals = signal.SIGKILL) -> None:
        (process,) = self.llms[name].engine_core.resources.engine_manager.processes
        os.kill(process.pid, by)

    async def watch(self, name: str, silent_s: float) -> None:
        """Watch one that has owed an answer for so long."""
        await self.failovers[name].watch(lambda: silent_s, self.carried[name].count)


def engine_args(model: Path, slots: int = SLOTS) -> AsyncEngineArgs:
    return AsyncEngineArgs(
        model=str(model),
        served_model_name=["m"],
        max_num_seqs=slots,
        max_num_batched_tokens=64,
        max_model_len=512,
        block_size=32,
        num_gpu_blocks_override=512,
        scheduler_cls=OURS,
        additional_config=batching(),
        dtype="float32",  # so that a greedy answer does not depend on its batch
        enforce_eager=True,
    )


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


async def test_answers_of_engines_that_die_are_those_of_one_that_does_not(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replicas.server.failover.LOOK_S", 0.05)
    fleet = Fleet({name: started(engine_args(tiny_llama)) for name in "abc"})
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
    fleet.kill("b", signal.SIGSTOP)  # it hangs, and has only requests of the dead one
    spared = asyncio.create_task(fleet.watch("c", 0.0))
    await asyncio.gather(fleet.watch("b", math.inf), *tasks.values())
    spared.cancel()
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
    penalty = {"presence_penalty": 0.5, "n": 2, "temperature": 1.0}
    others = {"penalty": penalty, "waits": {}, "kills": {}}
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


def told(body: str) -> dict[str, Any]:
    """What an answer says, however it was cut into events: texts joined, the last of each count."""
    found: dict[str, Any] = {}

    def walk(value: Any) -> None:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, dict | list):
                walk(item)
            elif isinstance(item, str) and key in TEXTS:
                found[key] = found.get(key, "") + item
            elif isinstance(item, int) and key in COUNTS:
                found[key] = item

    lines = [line.removeprefix("data: ") for line in body.splitlines()]
    for line in lines:
        if line.startswith("{"):
            walk(json.loads(line))
    return found


TEXTS = ("text", "content", "arguments", "delta", "partial_json", "finish_reason", "stop_reason")
COUNTS = ("output_tokens", "completion_tokens", "prompt_tokens", "input_tokens", "error", "code")
GREEDY = {"model": "m", "temperature": 0, "repetition_penalty": 1.3, "ignore_eos": True}
ASK = {**GREEDY, "prompt": "a river", "max_tokens": 60}
TALK = {**GREEDY, "messages": HI, "max_tokens": 60}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
NAMED = {"type": "function", "function": {"name": "f"}}
ANSWER = {"model": "m", "input": "hi", "max_output_tokens": 60, "temperature": 0}
MESSAGE = {"model": "m", "messages": HI, "max_tokens": 60, "temperature": 0, "stream": True}
BY_API = {
    "echo": (COMPLETIONS, {**ASK, **STREAM, "echo": True, "logprobs": 2}),
    "several": (COMPLETIONS, {**ASK, "prompt": ["a river", "a jar"], "logprobs": 1}),
    "siblings": (COMPLETIONS, {**ASK, "temperature": 1, "n": 2}),
    "chat": (CHAT, {**TALK, "logprobs": True}),
    "tool": (CHAT, {**TALK, **STREAM, "tools": [TOOL], "tool_choice": NAMED}),
    "response": (RESPONSES, ANSWER),
    "response in events": (RESPONSES, {**ANSWER, "stream": True}),
    "message": ("/v1/messages", MESSAGE),
    **{f"at {k}": (COMPLETIONS, {**ASK, "max_tokens": k}) for k in range(BEFORE - 1, BEFORE + 8)},
}


def fewest(states: Any) -> int:
    """The tokens of the shortest of these answers."""
    return min(len(one.detokenizer.output_token_ids) for one in states.values())


async def test_every_api_goes_on_and_who_leaves_is_left(tiny_llama: Path) -> None:
    apps, llms = {}, {}
    for name in "ab":
        args = engine_args(tiny_llama, 2 * len(BY_API))
        tools = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
        llms[name], apps[name] = await app_around(args, tools)
    fleet = Fleet(llms)

    async def answers(name: str) -> dict[str, dict[str, Any]]:
        transport = httpx.ASGITransport(apps[name])
        async with httpx.AsyncClient(transport=transport, base_url="http://m", timeout=120) as to:
            got = await asyncio.gather(
                *(to.post(path, json=body) for path, body in BY_API.values())
            )
        for one in got:
            assert one.status_code == 200, one.text
        return {kind: told(one.text) for kind, one in zip(BY_API, got, strict=True)}

    alone = await answers("b")
    states = llms["a"].output_processor.request_states
    left, leaving = ask_all(llms["a"], {"leaves": {"max_tokens": 400}})
    asked = asyncio.create_task(answers("a"))
    while len(states) <= len(BY_API) or fewest(states) < BEFORE - 2:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    fleet.kill("a")
    await until_begun(left, 2 * BEFORE, 1)
    leaving["leaves"].cancel()
    told_a = await asked
    for kind, known in alone.items():
        if kind == "siblings":  # drawn at random
            known, told_a[kind] = known | {"text": ""}, told_a[kind] | {"text": ""}
        assert told_a[kind] == known, kind
    assert not fleet.failovers["a"].ended
    while (await exchange(llms["b"], None, "b", "g"))["running"]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert not fleet.carried["b"]._queues
    assert len(left["leaves"].tokens[0]) < 400
