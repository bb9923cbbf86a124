"""A corner's engine: every request waits for its grammar, in vLLM's second queue.

It runs the production scheduler on vLLM's own, as every replay does.
"""

from collections import deque
from concurrent.futures import Future
from typing import Any

import torch
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.request import Request as EngineRequest
from vllm.v1.request import RequestStatus
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar
from vllm.v1.structured_output.request import StructuredOutputRequest

from simulator.virtual.scheduler import VirtualScheduler

_ANY = StructuredOutputsParams(regex=".*")


class Anything(StructuredOutputGrammar):
    """A grammar that allows every token: what it forbids is not the replay's matter."""

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def rollback(self, num_tokens: int) -> None:
        """Nothing is kept."""

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Nothing is forbidden."""

    def is_terminated(self) -> bool:
        return False

    def reset(self) -> None:
        """Nothing is kept."""


class GrammarScheduler(VirtualScheduler):
    """Every request asks for structured output, and may start when its grammar is compiled."""

    def __init__(self, *args: Any, grammar_s: float, **kwargs: Any) -> None:
        self._grammar_s = grammar_s
        self._compiling: deque[tuple[float, Future[StructuredOutputGrammar]]] = deque()
        super().__init__(*args, **kwargs)

    def add_request(self, request: EngineRequest) -> None:
        compiling: Future[StructuredOutputGrammar] = Future()
        self._compiling.append((self.now_s() + self._grammar_s, compiling))
        request.structured_output_request = StructuredOutputRequest(_ANY, compiling)
        request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        # Where nothing else is to do no step passes the time, and the next one is compiled at once.
        idle = not self.running and len(self._compiling) == len(self.requests)
        while self._compiling and (idle or self._compiling[0][0] <= self.now_s()):
            self._compiling.popleft()[1].set_result(Anything())
            idle = False
        return super().schedule(*args, **kwargs)
