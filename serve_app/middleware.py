"""Middleware in front of the engine of ``vllm serve``: metrics, status, admission, without Ray.

``--middleware serve_app.middleware.BrimfulMiddleware`` adds it (docs/standalone.md). vLLM's own
app answers everything else.
"""

import asyncio
import contextlib
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from replicas.admission.answers import RefusedError
from replicas.admission.asgi import App, Receive, Send, send_answer
from replicas.door.body import read_body
from replicas.door.settings import Limits
from replicas.engine.settings import EngineSettings, parse_settings
from serve_app.explain import explain_json
from serve_app.snapshot import status_json

if TYPE_CHECKING:
    from replicas.admission.gate import Gate

logger = logging.getLogger("vllm.brimful")  # vLLM's own handler shows it
SCHEDULER = "DynamicBatchScheduler"
APPLICATION = "vllm"  # the metrics' label that Ray Serve's application name is in
PAGES = {"/brimful/status": status_json, "/brimful/explain": explain_json}
GUARDED = "/v1"  # vLLM asks for its API key below it


class BrimfulMiddleware:
    """ASGI middleware for vLLM's app; if the engine's scheduler is not ours, it does nothing."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._on = False

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with self._linked(scope["app"]):
                await self.app(scope, receive, send)
            return
        if self._on and scope["type"] == "http":
            path = scope["path"].removeprefix(root := scope.get("root_path", ""))
            if path in PAGES:
                scope = {**scope, "path": root + GUARDED + path}
        await self.app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _linked(self, app: Any) -> Any:
        """The server's lifespan, during which the engine exists from the beginning."""
        client = getattr(app.state, "engine_client", None)
        if client is None or not _is_ours(client.vllm_config.scheduler_config.scheduler_cls):
            if client is not None:
                logger.warning(
                    "BrimfulMiddleware does nothing: --scheduler-cls is not"
                    " replicas.scheduler.DynamicBatchScheduler."
                )
            yield
            return
        if getattr(app.state, "brimful", False):
            logger.warning("BrimfulMiddleware is given twice: the second one does nothing.")
            yield
            return
        app.state.brimful = True
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
        if client._client_count == 1 and "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            logger.warning(
                "BrimfulMiddleware exports no metrics: vLLM reads them from the files of"
                " PROMETHEUS_MULTIPROC_DIR. Unset it: a single API server does not need it."
            )
        self._on = True
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
                " servers sees only its own requests. --api-server-count 1 turns both on.",
                client._client_count,
            )
            return None
        if (engines := len(client.engine_core.core_engines)) > 1:
            logger.warning(
                "BrimfulMiddleware refuses no request, and its metrics and status are the first"
                " engine's of %d (data_parallel_size).",
                engines,
            )
            return None
        try:
            from replicas.admission.http import AdmissionMiddleware
            from replicas.server.engine_gate import gate_for
        except ImportError as error:  # vLLM before 0.29
            logger.warning("BrimfulMiddleware refuses no request: %s.", error)
            return None
        gate = gate_for(client, settings.live)
        # Behind vLLM's check of the API key: clients without a key learn nothing and add no load.
        before = _key_check(self.app) or self
        before.app = AdmissionMiddleware(before.app, client, gate)
        if settings.classes is not None:  # the body names one
            before.app = _BodyReader(before.app, settings.security.limits)
        return gate


class _BodyReader:
    """ASGI middleware that reads the body for admission."""

    def __init__(self, app: App, limits: Limits) -> None:
        self.app, self._limits = app, limits

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            try:
                receive = await read_body(scope, receive, self._limits)
            except RefusedError as refused:
                await send_answer(refused.answer, send)
                return
        await self.app(scope, receive, send)


def _key_check(app: Any) -> Any:
    """The innermost middleware that checks API keys, from ``app`` on; None: there is none."""
    found = None
    while app is not None:
        if type(app).__name__ == "AuthenticationMiddleware":
            found = app
        app = getattr(app, "app", None)
    return found


def _is_ours(scheduler: Any) -> bool:
    name = scheduler if isinstance(scheduler, str) else getattr(scheduler, "__qualname__", "")
    return name.rpartition(".")[2] == SCHEDULER
