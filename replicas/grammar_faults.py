"""Requests that the engine ends for their grammar, told from those that it fails itself.

vLLM ends a request with the finish reason ``error``, and its API answers 500, where a grammar
cannot be compiled, where it allows no token at all, and where it allows none that the request's
own ``allowed_token_ids``, ``bad_words`` and ``min_tokens`` leave. All of these are the client's to
mend (docs/upstream/vllm-grammar-errors.md). The reason goes to the frontend as ``stop_reason``,
which vLLM leaves empty there; ``replicas.grammar_answers`` makes a 400 of it.
"""

from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

FAULT = "brimful-grammar: "  # what a reason begins with
MOST_SHOWN = 120  # characters of what a compiler says: it repeats the grammar
OWN_MASKS = ("allowed_token_ids", "bad_words", "min_tokens")


class GrammarFaults(AsyncScheduler):
    """vLLM's scheduler, which says of a request that ended by its grammar why."""

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        failed = self.grammar_compile_error_reqs
        why = {i: _not_compiled(self.requests.get(i)) for i in failed} if failed else {}
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if why:
            _tell(outputs.values(), why)
        return outputs

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        # vLLM copies the stop reason into the request's last output after this.
        if request.status == RequestStatus.FINISHED_ERROR and request.use_structured_output:
            request.stop_reason = self._rejected(request)
        return super()._free_request(request, *args, **kwargs)

    def _rejected(self, request: Request) -> str | None:
        """Why no token could be right; None: the grammar had some, so it is not the client's."""
        params = request.sampling_params
        if own := [name for name in OWN_MASKS if getattr(params, name, None)]:
            return f"{FAULT}the grammar allows none of the tokens that {', '.join(own)} leave"
        backend = self.structured_output_manager.backend
        structured = request.structured_output_request
        grammar = None if structured is None else structured.grammar
        if backend is None or not isinstance(grammar, StructuredOutputGrammar):
            return None  # it ended before a token was to be drawn
        row = backend.allocate_token_bitmask(1)
        grammar.fill_bitmask(row, 0)
        return None if row.any() else f"{FAULT}the grammar allows no token"


def _not_compiled(request: Request | None) -> str:
    structured = None if request is None else request.structured_output_request
    said = "" if structured is None else " ".join(str(structured.grammar).split())
    shown = said if len(said) <= MOST_SHOWN else f"{said[:MOST_SHOWN]}..."
    return f"{FAULT}the grammar cannot be compiled: {shown}"


def _tell(outputs: Iterable[EngineCoreOutputs], why: dict[str, str]) -> None:
    for of_client in outputs:
        for output in of_client.outputs:
            output.stop_reason = why.get(output.request_id, output.stop_reason)
