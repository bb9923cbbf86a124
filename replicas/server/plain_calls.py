"""Admission where Ray Serve LLM's own ingress calls the replica instead of its HTTP app.

Answers travel as values here: a refusal is an ``ErrorResponse`` in place of the first item, and
carries its headers along for the ingress (``serve_app.ingress``), which Ray's own would drop.
"""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from ray.llm._internal.serve.core.configs.openai_api_models import ErrorInfo, ErrorResponse
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine

from replicas.admission.answers import HEADERS, Answer, RefusedError
from replicas.admission.asked import PRIORITY, PROMPT, TIER, check_headers
from replicas.admission.gate import Gate, Ticket, current, ends_with_engine
from replicas.admission.http import ERROR_FRAME, NO_FAILOVER, with_class
from replicas.server.egress import LeavingTokens, counted_items
from replicas.server.tracing import CARRIED, Tracing

Call = Callable[[Any, RawRequestInfo | None], AsyncGenerator[Any, None]]


class AdmittingEngine(VLLMEngine):
    """Ray Serve LLM's vLLM engine, whose chat and completions pass admission.

    Attributes:
        gate: None where nobody is refused.
        leaving: counts the gaps between the tokens that leave.
        tracing: None where nothing is traced.
    """

    gate: Gate | None = None
    leaving = LeavingTokens()
    tracing: Tracing | None = None

    async def chat(
        self, request: Any, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[Any, None]:
        items = self._answered(super().chat, request, raw_request_info)
        async for item in counted_items(items, self.leaving):
            yield item

    async def completions(
        self, request: Any, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[Any, None]:
        items = self._answered(super().completions, request, raw_request_info)
        async for item in counted_items(items, self.leaving):
            yield item

    def _answered(
        self, call: Call, request: Any, info: RawRequestInfo | None
    ) -> AsyncGenerator[Any, None]:
        if info is not None and _headers(info).get(NO_FAILOVER[0].decode()) == "off":
            ends_with_engine.set(True)
        if self.tracing is None:
            return admitted(self.gate, call(request, info), request, info)
        return self._traced(self.tracing, call, request, info)

    async def _traced(
        self, tracing: Tracing, call: Call, request: Any, info: RawRequestInfo | None
    ) -> AsyncGenerator[Any, None]:
        headers = _headers(info)
        with tracing.span(headers) as traced:
            others = {name: value for name, value in headers.items() if name not in CARRIED}
            info = RawRequestInfo(headers={**others, **traced.headers})
            async for item in admitted(self.gate, call(request, info), request, info):
                if isinstance(item, ErrorResponse):
                    traced.status = item.error.code
                yield item
            traced.whole = True

    def refuses(self, request: Any, info: RawRequestInfo | None) -> bool:
        """Whether a call with this request would be refused now, whatever its prompt is."""
        if self.gate is None:
            return False
        try:
            return _ticket(self.gate, request, info).refused_early() is not None
        except RefusedError:
            return True


async def admitted(
    gate: Gate | None,
    items: AsyncGenerator[Any, None],
    request: Any,
    info: RawRequestInfo | None,
) -> AsyncGenerator[Any, None]:
    """The items of a call, or a refusal in their place.

    Args:
        gate: None: nobody is refused.
    """
    if gate is None:
        async for item in items:
            yield item
        return
    try:
        ticket = _ticket(gate, request, info)
    except RefusedError as refused:
        yield as_error(refused.answer)
        return
    current.set(ticket)  # of this call's own context: Ray runs each in a task
    if (answer := ticket.refused_early()) is not None:
        yield as_error(answer)
        return
    try:
        begun = False
        async for item in items:
            if not begun:
                begun = True
                first, over = _first(ticket, item)
                yield first
                if over:
                    return
            else:
                yield item
    except Exception:
        if ticket.answer is None or begun:
            raise
        yield as_error(ticket.answer)
    finally:
        ticket.close()
        await items.aclose()


def as_error(answer: Answer) -> ErrorResponse:
    """A refusal as Ray Serve LLM carries errors."""
    error = {**answer.body["error"], HEADERS: answer.headers}
    return ErrorResponse(error=ErrorInfo.model_validate(error))


def _ticket(gate: Gate, request: Any, info: RawRequestInfo | None) -> Ticket:
    headers = _headers(info)
    check_headers(headers.items())
    return gate.ticket(headers, _fields(request))


def _headers(info: RawRequestInfo | None) -> dict[str, str]:
    """By their names in lower case."""
    return {name.lower(): value for name, value in (info.headers if info else {}).items()}


def _first(ticket: Ticket, item: Any) -> tuple[Any, bool]:
    """What is sent first, and whether nothing may follow."""
    if ticket.answer is not None:
        return as_error(ticket.answer), True
    if isinstance(item, ErrorResponse):
        return item, True
    named = ticket.asked.name if ticket.asked.named else None
    if isinstance(item, str):
        if item.startswith(ERROR_FRAME.decode()):
            error = json.loads(item.partition("\n")[0].removeprefix("data: "))["error"]
            return ErrorResponse(error=ErrorInfo.model_validate(error)), True
        return (with_class(item.encode(), named).decode() if named else item), False
    if named:
        item.service_tier = named
    return item, False


def _fields(request: Any) -> dict[str, Any]:
    """The fields that admission reads: vLLM's models keep those that they do not know."""
    extra = getattr(request, "model_extra", None) or {}
    fields = {TIER: extra.get(TIER, getattr(request, TIER, None))}
    fields[PROMPT] = getattr(request, PROMPT, None)
    if PRIORITY in getattr(request, "model_fields_set", ()):
        fields[PRIORITY] = request.priority
    return fields
