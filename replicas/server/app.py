"""What stands before vLLM's own app in a replica: the middlewares, in their order."""

from typing import Any

from ray.llm._internal.serve.core.server.llm_server import _add_middleware_to_built_app
from vllm.v1.engine.async_llm import AsyncLLM

from replicas.admission.gate import Gate
from replicas.admission.http import AdmissionMiddleware, HeldMiddleware
from replicas.door.door import Door
from replicas.door.http import DoorMiddleware
from replicas.door.messages import MessagesMiddleware
from replicas.server.egress import LeavingMiddleware, LeavingTokens
from replicas.server.last_words import LastWords, LastWordsMiddleware
from replicas.server.tracing import Tracing, TracingMiddleware
from replicas.workarounds.disconnects import DisconnectMiddleware
from replicas.workarounds.message_errors import tell_errors
from replicas.workarounds.plain_errors import answer_http_errors
from replicas.workarounds.stream_ends import StreamEndMiddleware


def guard_app(
    app: Any,
    client: AsyncLLM,
    door: Door,
    words: LastWords,
    leaving: LeavingTokens,
    *,
    gate: Gate | None = None,
    tracing: Tracing | None = None,
) -> None:
    """Put them before an app that vLLM has built, the innermost first.

    Args:
        gate: None: nobody is refused.
        tracing: None: no spans are made.
    """
    tell_errors(app)
    answer_http_errors(app)
    _add_middleware_to_built_app(app, StreamEndMiddleware)
    if gate is not None:
        _add_middleware_to_built_app(app, AdmissionMiddleware, gate=gate)
    else:
        _add_middleware_to_built_app(app, HeldMiddleware, client=client)
    if tracing is not None:
        _add_middleware_to_built_app(app, TracingMiddleware, tracing=tracing)
    _add_middleware_to_built_app(app, DoorMiddleware, door=door)
    _add_middleware_to_built_app(app, DisconnectMiddleware)
    _add_middleware_to_built_app(app, LastWordsMiddleware, words=words)
    _add_middleware_to_built_app(app, MessagesMiddleware)
    _add_middleware_to_built_app(app, LeavingMiddleware, tokens=leaving)
