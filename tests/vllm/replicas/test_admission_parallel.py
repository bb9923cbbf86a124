"""The gate around vLLM's own ``generate`` where one call makes several requests of the engine."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import OutputProcessor

from controller.classes import parse_admission
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate, current
from tests.unit.replicas.admission.builders import CLASSES

PROMPT = {"type": "token", "prompt_token_ids": [1, 2, 3]}


class Frontend(AsyncLLM):
    """vLLM's ``generate``, ``add_request`` and output processor; nothing is behind them."""

    errored = property(lambda self: False)

    def __init__(self) -> None:
        self.output_processor = OutputProcessor(None, log_stats=False)
        self.log_requests = False
        self.model_config = SimpleNamespace(is_encoder_decoder=False)
        self.vllm_config = SimpleNamespace(
            cache_config=SimpleNamespace(kv_sharing_fast_prefill=False),
            scheduler_config=SimpleNamespace(policy="fcfs"),
        )
        self.sent: list[str] = []
        self.engine_core = SimpleNamespace(
            add_request_async=self._send, abort_requests_async=self._drop, shutdown=lambda **_: None
        )
        self.input_processor = SimpleNamespace(
            process_inputs=self._request, assign_request_id=InputProcessor.assign_request_id
        )

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def check_admission(self, *args: Any, **options: Any) -> None:
        pass

    def _run_output_handler(self) -> None:
        pass

    async def _send(self, request: EngineCoreRequest) -> None:
        self.sent.append(request.request_id)

    async def _drop(self, request_ids: Any) -> None:
        pass

    def _request(
        self, request_id: str, prompt: Any, params: Any, resumable: bool = False, **_: Any
    ) -> EngineCoreRequest:
        tokens = list(prompt["prompt_token_ids"])
        return EngineCoreRequest(
            request_id, tokens, None, params, None, 0.0, None, None, None, resumable=resumable
        )

    def give(self, *ids: str, last: bool = False) -> None:
        reason = FinishReason.LENGTH if last else None
        self.output_processor.process_outputs(
            [EngineCoreOutput(one, [1], finish_reason=reason) for one in ids]
        )


def guarded() -> tuple[Frontend, Gate]:
    engine = Frontend()
    gate = Gate(Admission(CLASSES, parse_admission(None), 10, 0.0), named_classes=True)
    gate.guard(engine)
    return engine, gate


async def ask(engine: Frontend, gate: Gate, kind: RequestOutputKind, n: int) -> list[Any]:
    params = SamplingParams(max_tokens=4, detokenize=False, n=n, output_kind=kind)
    current.set(gate.ticket({}, {}))
    return [output async for output in engine.generate(PROMPT, params, "one trace")]


def begin(engine: Frontend, gate: Gate, kind: RequestOutputKind, n: int) -> Any:
    return asyncio.create_task(ask(engine, gate, kind, n))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [RequestOutputKind.FINAL_ONLY, RequestOutputKind.DELTA])
async def test_the_first_token_of_any_of_them_is_that_of_the_call(kind: RequestOutputKind) -> None:
    engine, gate = guarded()
    task = begin(engine, gate, kind, 3)
    await settle()
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (0, 1)
    assert len(engine.sent) == 3 and gate._unstarted.keys() == {*engine.sent}
    # Beside one that is not waited for, as that of a call that was aborted meanwhile.
    engine.give("unknown", engine.sent[1])
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (1, 0)
    assert not gate._unstarted
    engine.give(*engine.sent, last=True)
    assert await task
    assert gate.admission.waiting.running == 0
    assert sum(gate.admission.counts.started.values()) == 1


async def test_a_call_that_its_client_leaves_leaves_no_name_behind() -> None:
    engine, gate = guarded()
    for _ in range(3):
        task = begin(engine, gate, RequestOutputKind.DELTA, 2)
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(engine.sent) == 6 and not gate._unstarted
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (0, 0)


async def test_a_request_of_which_a_prompt_has_begun_has_not_waited_too_long() -> None:
    engine, gate = guarded()
    ticket = gate.ticket({}, {})
    current.set(ticket)
    params = SamplingParams(max_tokens=4, detokenize=False, output_kind=RequestOutputKind.DELTA)
    calls = [asyncio.ensure_future(anext(engine.generate(PROMPT, params, "a"))) for _ in range(2)]
    await settle()
    first, second = ticket._limits
    assert second.when() is not None
    engine.give(engine.sent[0])
    await calls[0]
    assert (second.when(), ticket.limit(1.0).when()) == (None, None)
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert first.when() is None
    ticket.close()
