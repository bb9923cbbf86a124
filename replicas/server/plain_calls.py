"""Admission if Ray Serve LLM's own ingress calls the replica instead of its HTTP app.

Answers are values here: a refusal is an ``ErrorResponse`` instead of the first item. It carries its
headers to the ingress (``serve_app.ingress``); Ray's own would drop them.
"""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from ray.llm._internal.serve.core.configs.openai_api_models import ErrorInfo, ErrorResponse
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine

from replicas.admission.answers import HEADERS, Answer, RefusedError
from replicas.admission.asked import NO_FAILOVER, PRIORITY, PROMPT, TIER
from replicas.admission.gate import Gate, Ticket, current, ends_with_engine
from replicas.admission.http import ERROR_FRAME, with_class
from replicas.server.egress import LeavingTokens, counted_items
from replicas.server.tracing import CARRIED, Tracing

Call = Callable[[Any, RawRequestInfo | None], AsyncGenerator[Any, None]]


class AdmittingEngine(VLLMEngine):
    """Ray Serve LLM's vLLM engine, whose chat and completions pass admission.

    Attributes:
        gate: None: no request is refused.
        leaving: counts the gaps between tokens at egress.
        tracing: None: no spans.
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
    """The items of a call, or a refusal instead.

    Args:
        gate: None: no request is refused.
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
    current.set(ticket)  # in this call's own context: Ray runs each call in a task
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
    """A refusal in Ray Serve LLM's form for errors."""
    error = {**answer.body["error"], HEADERS: answer.headers}
    return ErrorResponse(error=ErrorInfo.model_validate(error))


def _ticket(gate: Gate, request: Any, info: RawRequestInfo | None) -> Ticket:
    return gate.ticket(_headers(info), _fields(request))


def _headers(info: RawRequestInfo | None) -> dict[str, str]:
    """Headers by lower-case name."""
    return {name.lower(): value for name, value in (info.headers if info else {}).items()}


def _first(ticket: Ticket, item: Any) -> tuple[Any, bool]:
    """The first item to send, and whether it is the last."""
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
    """The fields that admission reads: vLLM's models keep unknown ones."""
    extra = getattr(request, "model_extra", None) or {}
    fields = {TIER: extra.get(TIER, getattr(request, TIER, None))}
    fields[PROMPT] = getattr(request, PROMPT, None)
    if PRIORITY in getattr(request, "model_fields_set", ()):
        fields[PRIORITY] = request.priority
    return fields
