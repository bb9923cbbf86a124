"""Rigs and requests that several modules need."""

from concurrent.futures import Future

from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from tests.vllm.harness import Rig


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
