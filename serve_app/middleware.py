"""What is in front of the engine of ``vllm serve``: metrics, status and admission, without Ray.

``--middleware serve_app.middleware.BrimfulMiddleware`` puts it there (docs/standalone.md). vLLM's
own app answers everything else.
"""

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from replicas.admission.answers import RefusedError
from replicas.admission.asgi import App, Receive, Send, send_answer
from replicas.door.body import read_body
from replicas.engine.settings import EngineSettings, parse_settings
from serve_app.explain import explain_json
from serve_app.snapshot import status_json

if TYPE_CHECKING:
    from replicas.admission.gate import Gate

logger = logging.getLogger("vllm.brimful")  # vLLM's own handler shows it
SCHEDULER = "DynamicBatchScheduler"
APPLICATION = "vllm"  # what Ray Serve's name of the application is in the metrics
PAGES = {"/brimful/status": status_json, "/brimful/explain": explain_json}
GUARDED = "/v1"  # vLLM asks for its API key below it


class BrimfulMiddleware:
    """ASGI middleware for vLLM's app; if the engine's scheduler is not ours, it does nothing."""

    def __init__(self, app: App) -> None:
        self._app = self._inner = app
        self._settings: EngineSettings | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with self._linked(scope["app"]):
                await self._app(scope, receive, send)
            return
        if self._settings is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(root := scope.get("root_path", ""))
        if path in PAGES:
            scope = {**scope, "path": root + GUARDED + path}
        try:
            if self._settings.classes is not None and scope["method"] == "POST":
                receive = await read_body(scope, receive, self._settings.security.limits)
        except RefusedError as refused:
            await send_answer(refused.answer, send)
            return
        await self._inner(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _linked(self, app: Any) -> Any:
        """The server's life, of which the engine is there from the beginning."""
        client = getattr(app.state, "engine_client", None)
        if client is None or not _is_ours(client.vllm_config.scheduler_config.scheduler_cls):
            if client is not None:
                logger.warning(
                    "BrimfulMiddleware does nothing: --scheduler-cls is not"
                    " replicas.scheduler.DynamicBatchScheduler."
                )
            yield
            return
        from prometheus_client import REGISTRY

        from replicas.server.local_link import LocalLink

        settings = parse_settings(client.vllm_config.additional_config)
        gate = self._admit(client, settings)
        names = app.state.args.served_model_name or [client.model_config.model]
        replica = f"{socket.gethostname()}:{app.state.args.port}"
        link = LocalLink(client, settings, gate, (APPLICATION, names[0], replica))
        for path, page in PAGES.items():
            app.add_route(GUARDED + path, lambda _, page=page: JSONResponse(page(link.snapshot())))
        REGISTRY.register(link.collector)
        self._settings = settings
        task = asyncio.create_task(link.run())
        try:
            yield
        finally:
            task.cancel()
            REGISTRY.unregister(link.collector)

    def _admit(self, client: Any, settings: EngineSettings) -> "Gate | None":
        """The gate in front of the engine; None if no request is refused."""
        if client._client_count > 1:
            logger.warning(
                "BrimfulMiddleware refuses no request and exports no metrics: each of %d API"
                " servers sees its own requests alone. --api-server-count 1 has both.",
                client._client_count,
            )
            return None
        try:
            from replicas.admission.http import AdmissionMiddleware
            from replicas.server.engine_gate import gate_for
        except ImportError as error:  # vLLM before 0.29
            logger.warning("BrimfulMiddleware refuses no request: %s.", error)
            return None
        gate = gate_for(client, settings.live)
        self._inner = AdmissionMiddleware(self._app, client, gate)
        return gate


def _is_ours(scheduler: Any) -> bool:
    name = scheduler if isinstance(scheduler, str) else getattr(scheduler, "__qualname__", "")
    return name.rpartition(".")[2] == SCHEDULER
