"""The server class of engines that change roles: each answers clients, computes prompts, or both.

The batch controller gives each replica a role (``controller.roles``), which it publishes. A request
comes to a replica that decodes. This replica computes the prompt, or a prefill engine of the same
deployment does and the replica loads the KV: the route with the earlier forecast first token
(``serve_app.routing.ways``). A replica whose role changes finishes its present requests.
"""

import time
from collections.abc import AsyncGenerator
from typing import Any

from ray import serve
from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionRequest
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.llm._internal.serve.core.server.llm_server import LLMServer

from controller.config import BatchingConfig
from controller.fleet.role_pool import transfer_of
from replicas.server.pd_server import WHERE, DecodeServer, ours, until_read
from replicas.server.plain_calls import admitted
from replicas.server.stream_ends import before_shutdown
from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.prompt import ASKED_BY, PromptLengths, read_prompt
from serve_app.routing.replica_load import PROMPT_TOKENS, Asked, read_room
from serve_app.routing.ways import WayChooser


class MixedServer(DecodeServer):
    """Asks its own deployment for prompts, if the controller has made prefill engines there."""

    async def __init__(  # type: ignore[misc]  # as Ray's own: Serve awaits it
        self, llm_config: Any, **kwargs: Any
    ) -> None:
        context = serve.get_replica_context()
        self._own = context.replica_id.unique_id
        # Not checked: the deployment is just being made.
        handle = serve.get_deployment_handle(
            context.deployment, context.app_name, _check_exists=False
        )
        self._chooser: HeadroomChooser[str] = HeadroomChooser(own=self._own)
        self._lengths = PromptLengths()
        self._by: tuple[BatchingConfig, WayChooser[str]] | None = None
        await super().__init__(llm_config, prefill_server=handle, **kwargs)

    async def start(self) -> None:
        await super().start()
        before_shutdown(lambda budget_s: self._link.leave())

    async def __del__(self) -> None:
        await until_read(getattr(self, "_link", None))
        await super().__del__()

    async def prompt_chat(
        self, request: Any, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[Any, None]:
        """A prompt for another replica of this deployment, which needs only its KV."""
        async for item in self._prompt(LLMServer.chat, request, raw_request_info):
            yield item

    async def prompt_completions(
        self, request: Any, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[Any, None]:
        """The same."""
        async for item in self._prompt(LLMServer.completions, request, raw_request_info):
            yield item

    async def _prompt(
        self, method: Any, request: Any, info: RawRequestInfo | None
    ) -> AsyncGenerator[Any, None]:
        ours.set(True)
        items = await method(self, request, info)
        # The HTTP app has done so for its own requests; without such an app the engine does.
        gate = None if self.engine.gate is not None else self._gate
        async for item in admitted(gate, items, request, info):
            yield item

    async def _prefilled(self, request: Any, info: RawRequestInfo | None) -> Any:
        asked = self._asked(request)
        ways = self._ways()
        if ways is None or not self._goes_through(ways, asked):
            self._prefills.inc(1, {WHERE: "direct"})
            return None
        try:
            return await super()._prefilled(request, info)
        finally:
            ways.handed_over(self._own, asked, time.time())

    def _goes_through(self, ways: WayChooser[str], asked: Asked) -> bool:
        now_s = time.time()
        rooms = self._rooms()
        pool = [key for key, room in rooms.items() if room is not None and room.prefill]
        sent_to = {self._own, *pool}
        for key in sent_to:  # requests to the other replicas are not part of this replica's share
            self._chooser.update(key, rooms[key], now_s)
        self._chooser.keep(sent_to)
        # A replica that becomes a prefill engine answers the requests that were on their way to it.
        others = [] if self._own in pool else pool
        return ways.choose([self._own], others, asked, now_s).prefill is not None

    def _rooms(self) -> dict[str, Any]:
        """The last published load of this deployment's replicas; of this one, the present load."""
        router = self._prefill_handle._router._asyncio_router.request_router
        replicas = [] if router is None else list(router.curr_replicas.values())
        rooms = {one.replica_id.unique_id: read_room(one.routing_stats) for one in replicas}
        rooms[self._own] = read_room(self._link.routing_stats())
        return rooms

    def _ways(self) -> WayChooser[str] | None:
        """The routes under the present block; None: no roles, or transfers are unknown yet."""
        config, report = self._link.config, self._link.recent_report()
        if config.roles is None or report is None or config.sla.itl_s is None:
            return None
        if self._by is None or self._by[0] is not config:
            if (transfer := transfer_of(config.roles, report.engine)) is None:
                return None
            handover_s = transfer.handover_s(config.sla.itl_s)
            ways: WayChooser[str] = WayChooser(
                self._chooser, transfer.wire_s, handover_s, direct=config.roles.direct
            )
            self._by = config, ways
        return self._by[1]

    def _asked(self, request: Any) -> Asked:
        prompt = read_prompt(request, 0)
        tokens = self._lengths.tokens(prompt, self._chooser.usual.mean_prompt_tokens)
        if prompt is None:
            return Asked(PROMPT_TOKENS if tokens is None else tokens)
        self._lengths.note(prompt)
        return Asked(PROMPT_TOKENS if tokens is None else tokens, prompt.max_tokens)

    def _asked_for(self, request: Any) -> Any:
        asked = super()._asked_for(request)
        asked.kv_transfer_params = {**asked.kv_transfer_params, ASKED_BY: self._own}
        return asked

    def _method_of(self, handle: Any, request: Any) -> Any:
        chats = isinstance(request, ChatCompletionRequest)
        return handle.prompt_chat if chats else handle.prompt_completions

    def _prefill_replicas(self) -> int:
        rooms = self._rooms()
        return sum(key != self._own and bool(one and one.prefill) for key, one in rooms.items())
