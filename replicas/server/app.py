"""The three middlewares in front of vLLM's own app, in order."""

from typing import Any

from ray.llm._internal.serve.core.server.llm_server import _add_middleware_to_built_app
from vllm.v1.engine.async_llm import AsyncLLM

from replicas.admission.gate import Gate
from replicas.admission.http import AdmissionMiddleware
from replicas.door.auth import Door
from replicas.door.http import DoorMiddleware
from replicas.server.egress import LeavingTokens
from replicas.server.stream_ends import OpenAnswers, StreamEndMiddleware
from replicas.server.tracing import Tracing
from replicas.workarounds.message_errors import tell_errors
from replicas.workarounds.plain_errors import answer_http_errors


def guard_app(
    app: Any,
    client: AsyncLLM,
    door: Door,
    answers: OpenAnswers,
    leaving: LeavingTokens,
    *,
    gate: Gate | None = None,
    tracing: Tracing | None = None,
) -> None:
    """Add them to an app that vLLM has built, the innermost first.

    Args:
        gate: None: no request is refused.
        tracing: None: no spans.
    """
    tell_errors(app)
    answer_http_errors(app)
    _add_middleware_to_built_app(app, AdmissionMiddleware, client=client, gate=gate, traces=tracing)
    _add_middleware_to_built_app(app, DoorMiddleware, door=door)
    _add_middleware_to_built_app(app, StreamEndMiddleware, answers=answers, leaving=leaving)
