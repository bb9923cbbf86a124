"""Requests that the engine ends because of their grammar, told from the engine's own failures.

vLLM ends a request with the finish reason ``error``, and its API answers 500, if a grammar
cannot be compiled, if it allows no token at all, and if it allows none that the request's
own ``allowed_token_ids``, ``bad_words`` and ``min_tokens`` leave. All of these are the client's
fault (docs/upstream/vllm-grammar-errors.md). The reason goes to the frontend as ``stop_reason``,
which vLLM leaves empty here; ``replicas.workarounds.grammar_answers`` answers 400 instead.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from controller.fail_open import Guard
from controller.models.arrays import Bools

FAULT = "brimful-grammar: "  # the beginning of a reason
FAILED = "a grammar's fault"  # the failing part, for a log
MOST_SHOWN = 120  # characters of a compiler's message: it repeats the grammar
OWN_MASKS = ("allowed_token_ids", "bad_words", "min_tokens")


class GrammarFaults(AsyncScheduler):
    """vLLM's scheduler, with the reason if a request ended by its grammar.

    Attributes:
        reports_grammar_errors: as the stop reason, which ``workarounds.grammar_answers`` takes out
            of the answer again.
    """

    reports_grammar_errors = False
    guard: Guard

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        # Not in vLLM 0.25.
        failed = self.reports_grammar_errors and getattr(self, "grammar_compile_error_reqs", None)
        why: dict[str, str] = {}
        if failed:
            self.guard.attempt(FAILED, self._note_not_compiled, failed, why)
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if why:
            self.guard.attempt(FAILED, _tell, outputs.values(), why)
        return outputs

    def _note_not_compiled(self, failed: Iterable[str], why: dict[str, str]) -> None:
        why.update({req_id: _not_compiled(self.requests.get(req_id)) for req_id in failed})

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        # vLLM copies the stop reason into the request's last output after this.
        failed = self.reports_grammar_errors and request.status == RequestStatus.FINISHED_ERROR
        if failed and request.use_structured_output:
            self.guard.attempt(FAILED, self._note_rejected, request)
        return super()._free_request(request, *args, **kwargs)

    def _note_rejected(self, request: Request) -> None:
        request.stop_reason = self._rejected(request)

    def _rejected(self, request: Request) -> str | None:
        """Why no token is allowed; None: the grammar allows some, so the client is not at fault."""
        backend = self.structured_output_manager.backend
        structured = request.structured_output_request
        grammar = None if structured is None else structured.grammar
        if backend is None or not isinstance(grammar, StructuredOutputGrammar):
            return None  # it ended before a token was to be drawn
        if grammar.is_terminated():
            return None
        row = backend.allocate_token_bitmask(1)
        grammar.fill_bitmask(row, 0)
        bits = np.unpackbits(row.numpy().view(np.uint8), bitorder="little").astype(bool)
        allowed = bits[: self.vllm_config.model_config.get_vocab_size()]
        if not allowed.any():
            return f"{FAULT}the grammar allows no token"
        params = request.sampling_params
        if params is None:
            return None
        _mask(allowed, params, list(request.output_token_ids)[:-1])  # the last one was rejected
        if allowed.any():
            return None
        own = [name for name in OWN_MASKS if getattr(params, name, None)]
        return f"{FAULT}the grammar allows none of the tokens that {', '.join(own)} leave"


def _mask(allowed: Bools, params: SamplingParams, generated: list[int]) -> None:
    """Remove the tokens that the request itself forbids next, as vLLM's sampler does."""
    if params.allowed_token_ids:
        named = np.zeros_like(allowed)
        named[[token for token in params.allowed_token_ids if token < len(allowed)]] = True
        allowed &= named
    if len(generated) < params.min_tokens:
        allowed[[token for token in params.all_stop_token_ids if token < len(allowed)]] = False
    for *before, last in params.bad_words_token_ids or ():
        if not before or generated[-len(before) :] == before:
            allowed[last] = False


def _not_compiled(request: Request | None) -> str:
    structured = None if request is None else request.structured_output_request
    said = "" if structured is None else " ".join(str(structured.grammar).split())
    shown = said if len(said) <= MOST_SHOWN else f"{said[:MOST_SHOWN]}..."
    return f"{FAULT}the grammar cannot be compiled: {shown}"


def _tell(outputs: Iterable[EngineCoreOutputs], why: dict[str, str]) -> None:
    for of_client in outputs:
        for output in of_client.outputs:
            output.stop_reason = why.get(output.request_id, output.stop_reason)
