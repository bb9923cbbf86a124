"""Requests that this engine continues for a replica whose own engine died.

That replica keeps each request's text, stop strings, logprobs and client. This one gets the tokens
so far and sends back EngineCore's outputs as they are.
"""

import asyncio
import copy
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm.v1.engine.exceptions import EngineDeadError

from replicas.engine.moved import moved_id


@dataclass(frozen=True, slots=True)
class Moved:
    """A request whose engine died, on its way to another replica.

    Args:
        request: vLLM's ``EngineCoreRequest``; its prompt ends with the tokens generated so far.
        generated: how many of them there are.
        brimful_avoid: unique ids of replicas that cannot take it; the router reads them.
    """

    request: Any
    generated: int
    brimful_avoid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A replica's first answer.

    Args:
        replica: its unique id.
        refused: why it cannot continue the request; None: it does.
    """

    replica: str
    refused: str | None = None


class Carried:
    """Other replicas' requests in this replica's engine.

    Args:
        client: vLLM's ``AsyncLLM``.
        replica: this replica's unique id.
        loras: its adapters by name.
    """

    def __init__(self, client: Any, replica: str, loras: Mapping[str, Any]) -> None:
        self._client, self._replica, self._loras = client, replica, loras
        self._queues: dict[str, asyncio.Queue[Any]] = {}  # by the id in this engine
        processor = client.output_processor
        process, propagate = processor.process_outputs, processor.propagate_error

        def processed(outputs: Any, *args: Any, **options: Any) -> Any:
            if self._queues:
                for output in outputs:
                    if (queue := self._queues.get(output.request_id)) is not None:
                        queue.put_nowait(output)
            return process(outputs, *args, **options)  # which passes over ids it does not know

        def failed(error: Exception) -> None:
            for queue in self._queues.values():
                queue.put_nowait(error)
            propagate(error)

        processor.process_outputs, processor.propagate_error = processed, failed

    def count(self) -> int:
        """Return how many requests it continues now."""
        return len(self._queues)

    async def carry_on(self, moved: Moved) -> AsyncGenerator[Any, None]:
        """``Accepted``, then lists of vLLM's ``EngineCoreOutput``, until the request ends.

        Raises:
            EngineDeadError: this engine is dead, too.
        """
        if self._client.errored:
            raise EngineDeadError
        request, given = copy.copy(moved.request), moved.request.request_id
        if request.lora_request is not None:
            # Numbers and paths of adapters are each replica's own.
            request.lora_request = self._loras.get(request.lora_request.lora_name)
            if request.lora_request is None:
                yield Accepted(self._replica, "no other replica has its adapter")
                return
        own = request.request_id = moved_id(given, uuid.uuid4().hex[:8], moved.generated)
        queue = self._queues[own] = asyncio.Queue()
        core, finished = self._client.engine_core, False
        try:
            await core.add_request_async(request)
            yield Accepted(self._replica)
            while not finished:
                outputs = [await queue.get()]
                while not queue.empty():
                    outputs.append(queue.get_nowait())
                for output in outputs:
                    if isinstance(output, Exception):
                        raise output
                    output.request_id, output.events = given, None  # times of another machine
                    finished = output.finished
                yield outputs
        finally:
            del self._queues[own]
            if not finished:
                await core.abort_requests_async([own])
