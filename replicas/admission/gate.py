"""Admission in front of the engine: every call of ``AsyncLLM.generate`` passes it.

Both vLLM's own app and Ray Serve LLM's ingress call it, and the prompt's tokens are known there.
The request's context comes in a context variable.
"""

import asyncio
import contextlib
import copy
import math
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from vllm.exceptions import GenerationError, GracefulHTTPError
from vllm.v1.engine.exceptions import EngineDeadError

from controller.classes import AdmissionConfig, ServiceClasses
from controller.config import Sla
from controller.records import EngineReport, to_wire
from controller.request_slo import KEY, RequestSlo, of_class
from replicas.admission.admission import Admission
from replicas.admission.answers import Answer
from replicas.admission.asked import Asked, read_request
from replicas.admission.drain import engine_view
from replicas.admission.waiting import Entry


class NotLetInError(GracefulHTTPError):
    """A refusal as vLLM's handlers see it; the client gets the answer of its request context."""


class WaitedTooLongError(GenerationError):
    """A queue timeout as vLLM's handlers see it: they log no stack for this kind."""


class Ticket:
    """One request's context in admission.

    Attributes:
        answer: what to send instead, if it is refused.
    """

    def __init__(self, gate: "Gate", asked: Asked) -> None:
        self.asked = asked
        self.answer: Answer | None = None
        self._gate = gate
        self._entries: list[Entry] = []
        self._limits: list[asyncio.Timeout] = []
        self._begun = False
        self._closed = False

    def enter(self, prompt_tokens: int) -> Entry:
        """Admit one of its prompts.

        Raises:
            NotLetInError: it is refused; ``answer`` says why.
            CancelledError: its client has left.
        """
        if self._closed:  # its handler still runs, but nothing would end this entry
            raise asyncio.CancelledError
        if refused := self._gate.check(self.asked, prompt_tokens, own=self._inside()):
            self.answer = refused
            raise NotLetInError(refused.message, HTTPStatus(refused.status))
        entry = self._gate.admission.let_in(self.asked, prompt_tokens, self._gate.clock())
        self._entries.append(entry)
        return entry

    def limit(self, left_s: float) -> asyncio.Timeout:
        """The limit on a prompt's wait; none once another prompt has begun."""
        made = asyncio.timeout(None if self._begun else max(left_s, 0.0))
        self._limits.append(made)
        return made

    def begins(self) -> None:
        """One of its prompts has its first token: the request is served, and waits no longer."""
        self._begun = True
        for limit in self._limits:
            with contextlib.suppress(RuntimeError):  # that limit is over
                limit.reschedule(None)
        self._limits.clear()

    def left_s(self) -> float:
        """``Asked.left_s``, now."""
        return self.asked.left_s(self._gate.clock())

    def _inside(self) -> int:
        """Number of its prompts inside."""
        return sum(not entry.ended for entry in self._entries)

    @property
    def predicted_s(self) -> float | None:
        """The longest predicted wait of its prompts; None if unknown."""
        known = [e.predicted_s for e in self._entries if e.predicted_s is not None]
        return max(known, default=None)

    def refused_early(self) -> Answer | None:
        """Why it is refused whatever its prompt is; None: it is not."""
        self.answer = self._gate.check(self.asked, 0)
        return self.answer

    def failed(self) -> Answer:
        """The answer if the engine died before the first byte."""
        self.answer = self._gate.admission.failed(self.asked, self._gate.clock(), self._gate.draw())
        return self.answer

    def close(self) -> None:
        """The request is over: prompts that were admitted and never began leave the queue."""
        self._closed = True
        for entry in self._entries:
            self._gate.admission.waiting.end(entry, self._gate.clock())


current: ContextVar[Ticket | None] = ContextVar("brimful_ticket", default=None)
# No other engine may continue a request if its engine dies (``replicas.server.failover``).
ends_with_engine: ContextVar[bool] = ContextVar("brimful_ends_with_engine", default=False)


@dataclass(eq=False, slots=True)
class _Call:
    """One call of ``generate``, until its first token or its end.

    Args:
        ids: vLLM's own ids, one for each sequence. The client's id is not unique: two requests
            may have one ``X-Request-Id``.
    """

    ticket: Ticket
    entry: Entry
    ids: list[str] = field(default_factory=list)
    begun: bool = False


_calling: ContextVar[_Call | None] = ContextVar("brimful_call", default=None)


class Gate:
    """One replica's admission, with a clock and random numbers.

    Args:
        named_classes: whether classes were configured.
    """

    def __init__(
        self,
        admission: Admission,
        *,
        named_classes: bool,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.admission = admission
        self.clock, self.draw = clock, draw
        self.named_classes = named_classes
        self._unstarted: dict[str, _Call] = {}  # by vLLM's own request id

    def ticket(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> Ticket:
        """The context of a request that has arrived.

        Raises:
            BadRequestError: naming the field, its value and what is allowed.
        """
        classes = self.admission.classes
        asked = read_request(headers, body, classes, self.clock(), named_classes=self.named_classes)
        return Ticket(self, asked)

    def check(self, asked: Asked, prompt_tokens: int, own: int = 0) -> Answer | None:
        """``Admission.check`` at this time."""
        return self.admission.check(asked, prompt_tokens, self.clock(), self.draw(), own)

    def to_compute(self, prompt_tokens: int) -> int:
        """Prompt tokens to compute, by the share of prefix hits among the last ones."""
        return math.ceil(prompt_tokens * self.admission.waiting.engine.computed_frac)

    def refused_per_s(self) -> float:
        """Requests/s that were refused, of classes that count for autoscaling."""
        return self.admission.refusals.per_s(self.clock())

    def learn(self, report: EngineReport, sla: Sla) -> None:
        """Take a report of the engine."""
        self.admission.waiting.learn(engine_view(report, sla))

    def configure(
        self, classes: ServiceClasses, config: AdmissionConfig, *, named_classes: bool
    ) -> None:
        """Use these from now on; waiting requests keep their class and deadline."""
        self.named_classes = named_classes
        self.admission.configure(classes, config)

    def guard(self, client: Any) -> None:
        """Make every ``generate`` of this ``AsyncLLM`` pass admission."""
        generate = client.generate
        ordered = client.vllm_config.scheduler_config.policy == "priority"

        def admit(
            prompt: Any, sampling_params: Any, request_id: str, *args: Any, **options: Any
        ) -> AsyncGenerator[Any, None]:
            # Not a coroutine: a refusal has to be raised before vLLM begins its answer.
            ticket = current.get() or self.ticket({}, {})
            entry = ticket.enter(self.to_compute(prompt_tokens(prompt)))
            if ordered:  # vLLM reads no priority from the body of messages
                options["priority"] = options.get("priority") or ticket.asked.priority
            params = promised(sampling_params, self._slo(ticket.asked))
            outputs = generate(prompt, params, request_id, *args, **options)
            return self._watch(ticket, entry, outputs)

        client.generate = admit
        self._watch_first_tokens(client.output_processor)

    def _slo(self, asked: Asked) -> RequestSlo | None:
        known = self.admission.classes.by_name.get(asked.name) if self.named_classes else None
        return None if known is None else of_class(known)

    async def _watch(
        self, ticket: Ticket, entry: Entry, outputs: AsyncGenerator[Any, None]
    ) -> AsyncGenerator[Any, None]:
        asked = ticket.asked
        left_s = asked.arrived_s + asked.timeout_s - self.clock()
        call, limit = _Call(ticket, entry), ticket.limit(left_s)
        try:
            if limit.when() is not None and left_s <= 0:  # the engine must not see the request
                raise self._waited_too_long(ticket, entry)
            try:
                async with limit:
                    _calling.set(call)
                    first = await anext(outputs)  # if cancelled, vLLM aborts it in the engine
            except TimeoutError:
                if not limit.expired():
                    raise
                raise self._waited_too_long(ticket, entry) from None
            except EngineDeadError:
                ticket.failed()
                raise
            except StopAsyncIteration:
                return
            self._start(call)
            yield first
            async for output in outputs:
                yield output
        finally:
            self._forget(call)
            self.admission.waiting.end(entry, self.clock())
            await outputs.aclose()

    def _start(self, call: _Call) -> None:
        """The engine has made the first token of this call; no effect if that is known."""
        if call.begun:
            return
        self._forget(call)
        self.admission.started(call.entry, self.clock())
        call.ticket.begins()

    def _forget(self, call: _Call) -> None:
        call.begun = True
        for own_id in call.ids:
            self._unstarted.pop(own_id, None)
        call.ids.clear()

    def _watch_first_tokens(self, processor: Any) -> None:
        """Notice every first token; without streaming the answer comes only at the end."""
        add, process = processor.add_request, processor.process_outputs

        def added(request: Any, *args: Any, **options: Any) -> Any:
            # vLLM calls it in the task that waits for the first output.
            call = _calling.get()
            if call is not None and not call.begun:
                call.ids.append(request.request_id)
                self._unstarted[request.request_id] = call
            return add(request, *args, **options)

        def watched(outputs: Any, *args: Any, **options: Any) -> Any:
            if self._unstarted:
                for output in outputs:
                    if (call := self._unstarted.get(output.request_id)) is None:
                        continue
                    state = processor.request_states.get(output.request_id)
                    if state is not None and state.is_prefilling:
                        self._start(call)
            return process(outputs, *args, **options)

        processor.add_request = added
        processor.process_outputs = watched

    def _waited_too_long(self, ticket: Ticket, entry: Entry) -> WaitedTooLongError:
        ticket.answer = self.admission.timed_out(entry, ticket.asked, self.clock(), self.draw())
        return WaitedTooLongError(ticket.answer.message)


def promised(sampling_params: Any, slo: RequestSlo | None) -> Any:
    """Sampling parameters with the class's SLO for the engine; only admission may set it."""
    told = dict(sampling_params.extra_args or {})
    if slo is None and KEY not in told:
        return sampling_params
    told.pop(KEY, None)
    own = copy.copy(sampling_params)
    own.extra_args = told if slo is None else told | {KEY: to_wire(slo)}
    return own


def prompt_tokens(prompt: Any) -> int:
    """Tokens of a prompt as vLLM's app passes it to ``generate``; 0 if unknown."""
    known = prompt if isinstance(prompt, Mapping) else getattr(prompt, "__dict__", {})
    held = (known.get(name) for name in ("prompt_token_ids", "prompt_embeds"))
    return len(next((one for one in held if one is not None), ()))
