"""The two server classes of prefill and decode apart: Ray Serve LLM's, under the controller.

A request comes to a decode replica, which has a prefill replica compute the prompt's KV, loads it
and decodes. Where no prefill replica can, it prefills itself: nothing is lost but time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from vllm.exceptions import VLLMValidationError

from replicas.leaving import LeavingTokens
from replicas.pd_requests import KV_PARAMS, NOT_A_CLIENTS, forbidden, is_local, plain
from replicas.server import BrimfulServer
from replicas.startup import gc_paused

with gc_paused():  # these import vLLM
    from ray import serve
    from ray.llm._internal.serve.constants import RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING
    from ray.llm._internal.serve.core.configs.openai_api_models import (
        ChatCompletionRequest,
        ErrorInfo,
        ErrorResponse,
    )
    from ray.llm._internal.serve.core.protocol import RawRequestInfo
    from ray.llm._internal.serve.core.server.llm_server import LLMServer
    from ray.llm._internal.serve.serving_patterns.prefill_decode.pd_server import (
        PDDecodeServer,
        PDPrefillServer,
    )
    from ray.serve._private.http_util import session_id_from_headers

logger = logging.getLogger("ray.serve")

LOOK_S = 0.25  # how often it is looked whether there still is a prefill replica
# Nobody whom a prefill engine let in waits for longer; one that hangs would keep requests for ever.
LONGEST_PREFILL_S = 60.0
BAD_REQUEST = 400

_ours: ContextVar[bool] = ContextVar("brimful_remote_kv", default=False)


class PrefillError(Exception):
    """No prefill replica computed this prompt."""


class PrefillServer(BrimfulServer, PDPrefillServer):
    """Computes prompts for decode replicas, which call it; no client does."""


class DecodeServer(BrimfulServer, PDDecodeServer):
    """Answers clients, and has other engines compute their prompts."""

    async def start(self) -> None:
        await super().start()
        _guard(self.engine._engine_client)
        if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
            # Its HTTP app, which is around these calls too, does all of that already.
            self.engine.gate = None
            self.engine.tracing = None
            self.engine.leaving = LeavingTokens(on=False)

    def _batch_output_stream(self, generator: Any) -> Any:
        """Token by token where clients get them from here; Ray gathers them for its ingress."""
        if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
            return generator
        return super()._batch_output_stream(generator)

    async def _pd_handle_request(
        self, request: Any, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[Any, None]:
        """In place of Ray's own, for connectors that say after the prefill where its KV is.

        Those that bind an engine before it (``requires_peer_binding``) or run both at once go
        Ray's way, where a failed prefill fails the request.
        """
        if (field := forbidden(request)) is not None:
            yield _bad_request(field, f"{field}: {NOT_A_CLIENTS}")
            return
        if not is_local(request):
            backend = self._get_connector_backend()
            if backend.requires_peer_binding or backend.concurrent_handoff:
                _ours.set(True)
                async for item in super()._pd_handle_request(request, raw_request_info):
                    yield item
                return
            try:
                chunk = await self._prefilled(request, raw_request_info)
            except PrefillError as error:
                logger.warning("This replica prefills a request itself: %s", error)
            else:
                request = backend.prepare_decode_request(
                    request=request, peer=None, prefill_response=chunk
                )
                _ours.set(True)
        chats = isinstance(request, ChatCompletionRequest)
        method = LLMServer.chat if chats else LLMServer.completions
        async for item in await method(self, request, raw_request_info):
            yield item

    async def _prefilled(self, request: Any, info: RawRequestInfo | None) -> Any:
        """A prefill replica's answer, which says where the KV is.

        Raises:
            PrefillError: there is none, or it failed.
        """
        if not self._prefill_replicas():
            raise PrefillError("there is no prefill replica")
        asked = plain(
            self._get_connector_backend().prepare_prefill_request(request=request, peer=None)
        )
        name = "chat" if isinstance(request, ChatCompletionRequest) else "completions"
        handle = self._prefill_handle
        if adapter := serve.get_multiplexed_model_id():
            handle = handle.options(multiplexed_model_id=adapter)
        if info is not None and (session := session_id_from_headers(info.headers)):
            handle = handle.options(session_id=session)
        answer = getattr(handle, name).remote(asked, info)
        try:
            chunk = await self._first(answer)
        except PrefillError:
            raise
        except Exception as error:  # it died, or Ray cannot reach it
            raise PrefillError(f"{type(error).__name__}: {error}") from error
        if isinstance(chunk, ErrorResponse):
            # Whether it is the request's fault is for this engine to say, which was asked for it.
            raise PrefillError(f"it was answered {chunk.error.code}: {chunk.error.message}")
        return chunk

    async def _first(self, answer: Any) -> Any:
        """The first item of a call to a prefill replica, which ends with whoever waits for it."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + LONGEST_PREFILL_S
        first = asyncio.ensure_future(anext(answer))
        try:
            while True:
                done, _ = await asyncio.wait({first}, timeout=LOOK_S)
                if done:
                    return first.result()
                if not self._prefill_replicas():
                    raise PrefillError("the last prefill replica is gone")
                if clock() > until_s:
                    raise PrefillError(f"no answer within {LONGEST_PREFILL_S:g} s")
        finally:
            if not first.done():
                answer.cancel()
                first.cancel()

    async def _maybe_prewarm(self) -> None:
        token = _ours.set(True)
        try:
            await super()._maybe_prewarm()
        finally:
            _ours.reset(token)

    def _prefill_replicas(self) -> int:
        """How many this replica knows of. Ray would wait for one for as long as there is none."""
        router = self._prefill_handle._router._asyncio_router.request_router
        return 0 if router is None else len(router.curr_replicas)


def _guard(client: Any) -> None:
    """From now on this ``AsyncLLM`` loads nothing that a client says, on any route.

    Of a request that it refuses vLLM tells the engine, for the other engine to free its blocks: a
    client's own ``do_remote_prefill`` on ``/v1/responses`` was refused so, and ended the engine.
    """
    generate, reject = client.generate, client.notify_kv_transfer_request_rejected

    def told(prompt: Any, sampling_params: Any, *args: Any, **options: Any) -> Any:
        extra = getattr(sampling_params, "extra_args", None)
        if extra and extra.get(KV_PARAMS) is not None and not _ours.get():
            raise VLLMValidationError(f"{KV_PARAMS}: {NOT_A_CLIENTS}", parameter=KV_PARAMS)
        return generate(prompt, sampling_params, *args, **options)

    async def rejected(*args: Any, **options: Any) -> None:
        if _ours.get():
            await reject(*args, **options)

    client.generate, client.notify_kv_transfer_request_rejected = told, rejected


def _bad_request(field: str, message: str) -> ErrorResponse:
    error = {"message": message, "type": "invalid_request_error", "param": field}
    return ErrorResponse(error=ErrorInfo.model_validate({**error, "code": BAD_REQUEST}))
