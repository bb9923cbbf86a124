"""Server classes for disaggregated prefill and decode: Ray Serve LLM's, under the controller.

A decode replica gets the request. It has a prefill replica compute the prompt's KV, loads the KV
and decodes. If no prefill replica can, it prefills itself: only time is lost.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Any

from vllm.exceptions import VLLMValidationError

from controller.metrics import PREFILLS, REMOTE_PREFILL
from replicas.admission.answers import HEADERS, SERVER_ERROR, BadRequestError
from replicas.engine.settings import prefill_problems
from replicas.server.complaints import Complaints
from replicas.server.egress import LeavingTokens
from replicas.server.pd_requests import KV_PARAMS, NOT_A_CLIENTS, forbidden, is_local, plain
from replicas.server.server import BrimfulServer
from replicas.server.startup import gc_paused

with gc_paused():  # these import vLLM
    from ray import serve
    from ray.llm._internal.common.patches.vllm.tokenize_once import reuse_prompt_token_ids
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
    from ray.serve.metrics import Counter

    from replicas.admission.gate import current
    from replicas.engine.request_facts import CAME
    from replicas.server.control_link import ControlLink

logger = logging.getLogger("ray.serve")

LOOK_S = 0.25  # between two checks for a prefill replica
# No admitted prefill takes longer; one that hangs must not keep requests for ever.
LONGEST_PREFILL_S = 60.0
# Share of the time to a request's deadline; the decode engine may need the rest to prefill.
PREFILL_FRAC = 0.75
FALLS_BACK = "This replica prefills prompts itself: %s"
# remote; local: the request needs it; fallback: no other could; direct: sooner (MixedServer)
WHERE = PREFILLS.labels[0]

ours: ContextVar[bool] = ContextVar("brimful_remote_kv", default=False)


class PrefillError(Exception):
    """No prefill replica computed this prompt."""


class PrefillServer(BrimfulServer, PDPrefillServer):
    """Computes prompts for decode replicas; only these call it."""

    async def __del__(self) -> None:
        await until_read(getattr(self, "_link", None))  # None before its engine has started
        await super().__del__()

    def _live_problems(self, user_config: Any) -> list[str]:
        asked = user_config if isinstance(user_config, dict) else {}
        return prefill_problems(asked.get("batching"), "user_config.batching")


class DecodeServer(BrimfulServer, PDDecodeServer):
    """Answers clients; other engines compute their prompts."""

    async def start(self) -> None:
        await super().start()
        _guard(self.engine._engine_client)
        self._prefills, self._waited = Counter(*PREFILLS.args), Counter(*REMOTE_PREFILL.args)
        self._complaints = Complaints(logger)
        if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
            # Its HTTP app, which also wraps these calls, does all of that.
            self.engine.gate = None
            self.engine.tracing = None
            self.engine.leaving = LeavingTokens(on=False)

    def _batch_output_stream(self, generator: Any) -> Any:
        """Single tokens if clients get them from here; Ray batches them for its ingress."""
        if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
            return generator
        return super()._batch_output_stream(generator)

    async def _pd_handle_request(
        self, request: Any, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[Any, None]:
        """Replaces Ray's, for connectors that tell after the prefill where the KV is.

        Connectors that bind an engine before it (``requires_peer_binding``) or run both at once use
        Ray's code, in which a failed prefill fails the request.
        """
        if (field := forbidden(request)) is not None:
            yield _bad_request(field)
            return
        backend, ids, came_s = self._get_connector_backend(), None, time.time()
        if is_local(request) or self.engine.refuses(request, raw_request_info):
            self._prefills.inc(1, {WHERE: "local"})
        elif backend.requires_peer_binding or backend.concurrent_handoff:
            ours.set(True)
            self._prefills.inc(1, {WHERE: "remote"})
            async for item in super()._pd_handle_request(request, raw_request_info):
                yield item
            return
        elif (chunk := await self._prefilled(request, raw_request_info)) is not None:
            request = backend.prepare_decode_request(
                request=request, peer=None, prefill_response=chunk
            )
            if request.kv_transfer_params:
                request.kv_transfer_params = {**request.kv_transfer_params, CAME: came_s}
            ids = self._decode_reuse_ids(chunk)  # None unless pd_tokenize_once is set
            ours.set(True)
        chats = isinstance(request, ChatCompletionRequest)
        method = LLMServer.chat if chats else LLMServer.completions
        with reuse_prompt_token_ids(ids):
            async for item in await method(self, request, raw_request_info):
                yield item

    async def _prefilled(self, request: Any, info: RawRequestInfo | None) -> Any:
        """A prefill replica's answer, which tells where the KV is; None: there is none."""
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        try:
            chunk = await self._first(request, info)
        except Exception as error:  # no replica, it died, or Ray cannot reach it
            self._complaints.log(FALLS_BACK, error)
            chunk = None
        else:
            if isinstance(chunk, ErrorResponse):
                # This engine has to judge whether the request is at fault.
                if int(chunk.error.code or 0) >= SERVER_ERROR:
                    self._complaints.log(FALLS_BACK, PrefillError(chunk.error.message))
                chunk = None
        if (waited_s := clock() - begin_s) > 0:  # Ray's counters refuse 0
            self._waited.inc(waited_s)
        self._prefills.inc(1, {WHERE: "fallback" if chunk is None else "remote"})
        return chunk

    async def _first(self, request: Any, info: RawRequestInfo | None) -> Any:
        """The first item of a call to a prefill replica; the call ends if its caller does.

        Raises:
            PrefillError: there is no replica, or it took too long.
            Exception: Ray's, from the call.
        """
        if not self._prefill_replicas():
            raise PrefillError("there is no prefill replica")
        asked = self._asked_for(request)
        answer = self._prefill_method(request, info).remote(asked, info)
        clock = asyncio.get_running_loop().time
        longest_s = longest_prefill_s()
        until_s = clock() + longest_s
        first = asyncio.ensure_future(anext(answer))
        try:
            while True:
                done, _ = await asyncio.wait({first}, timeout=LOOK_S)
                if done:
                    return first.result()
                if not self._prefill_replicas():
                    raise PrefillError("the last prefill replica is gone")
                if clock() > until_s:
                    raise PrefillError(f"no answer within {longest_s:.3g} s")
        finally:
            if not first.done():
                answer.cancel()
                first.cancel()

    def _prefill_method(self, request: Any, info: RawRequestInfo | None) -> Any:
        handle = self._prefill_handle
        if adapter := serve.get_multiplexed_model_id():
            handle = handle.options(multiplexed_model_id=adapter)
        if info is not None and (session := session_id_from_headers(info.headers)):
            handle = handle.options(session_id=session)
        return self._method_of(handle, request)

    def _method_of(self, handle: Any, request: Any) -> Any:
        chats = isinstance(request, ChatCompletionRequest)
        return handle.chat if chats else handle.completions

    def _asked_for(self, request: Any) -> Any:
        """The request for a prefill replica."""
        backend = self._get_connector_backend()
        asked = plain(backend.prepare_prefill_request(request=request, peer=None))
        self._request_prefill_token_ids(asked)
        return asked

    async def _maybe_prewarm(self) -> None:
        token = ours.set(True)
        try:
            await super()._maybe_prewarm()
        finally:
            ours.reset(token)

    def _prefill_replicas(self) -> int:
        """Known prefill replicas. Without one, Ray would wait for it without limit."""
        router = self._prefill_handle._router._asyncio_router.request_router
        return 0 if router is None else len(router.curr_replicas)


async def until_read(link: ControlLink | None) -> None:
    """Keep a replica whose requests are all served until other engines have read its KV.

    Ray Serve only knows of requests: it would end the engine with the last answer.
    """
    since_s = asyncio.get_running_loop().time()
    for _ in range(int(LONGEST_PREFILL_S / LOOK_S)):
        if link is None or not link.holds_kv(since_s):
            return
        await asyncio.sleep(LOOK_S)


def longest_prefill_s() -> float:
    """How long this request waits for a prefill replica before the decode engine prefills."""
    ticket = current.get()
    if ticket is None:
        return LONGEST_PREFILL_S
    return min(LONGEST_PREFILL_S, PREFILL_FRAC * max(ticket.left_s(), 0.0))


def _guard(client: Any) -> None:
    """Make this ``AsyncLLM`` ignore a client's KV parameters, on every route.

    If vLLM refuses a request, it tells the engine, so that the other engine frees its blocks. On
    ``/v1/responses`` a client's own ``do_remote_prefill`` was refused like that, and ended the
    engine.
    """
    generate, reject = client.generate, client.notify_kv_transfer_request_rejected

    def told(prompt: Any, sampling_params: Any, *args: Any, **options: Any) -> Any:
        extra = getattr(sampling_params, "extra_args", None)
        if extra and extra.get(KV_PARAMS) is not None and not ours.get():
            raise VLLMValidationError(f"{KV_PARAMS}: {NOT_A_CLIENTS}", parameter=KV_PARAMS)
        return generate(prompt, sampling_params, *args, **options)

    async def rejected(*args: Any, **options: Any) -> None:
        if ours.get():
            await reject(*args, **options)

    client.generate, client.notify_kv_transfer_request_rejected = told, rejected


def _bad_request(field: str) -> ErrorResponse:
    answer = BadRequestError(field, NOT_A_CLIENTS).answer
    # For Ray's ingress; clients of this replica's own app must not see it.
    told = {} if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING else {HEADERS: answer.headers}
    return ErrorResponse(error=ErrorInfo.model_validate({**answer.body["error"], **told}))
