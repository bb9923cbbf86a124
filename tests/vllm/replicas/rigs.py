"""Rigs and requests that several modules need."""

from concurrent.futures import Future

import pytest
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from tests.vllm.harness import Rig

PACED = {"itl_ms": 50, "ttft_ms": 2000, "delivery": "paced"}


def paced_rig(tiny_llama, *, policy="static", in_flight=1, **args) -> Rig:
    return Rig.led(tiny_llama, {"policy": policy, "sla": PACED}, in_flight=in_flight, **args)


def late_tokens(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many tokens of each step were late, filled in as it goes."""
    late: list[int | None] = []
    after_step = rig.scheduler.governor.after_step
    monkeypatch.setattr(
        rig.scheduler.governor,
        "after_step",
        lambda sample, prefills: (late.append(sample.late), after_step(sample, prefills)),
    )
    return late


def grammar(request: Request) -> Future:
    """Its grammar is being compiled."""
    future: Future = Future()
    asked = StructuredOutputRequest(StructuredOutputsParams(regex="a+"), future)
    request.structured_output_request = asked
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    return future


def by_grammar(rig: Rig, request_id: str, **fields) -> Future:
    """A request that waits for its grammar."""
    request = rig.add(request_id, prompt=20, output=5, **fields)
    future = grammar(request)
    rig.scheduler.waiting.remove_request(request)
    rig.scheduler._enqueue_waiting_request(request)
    return future
