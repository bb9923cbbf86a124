"""What stands before vLLM's own app in a replica: three middlewares, in their order."""

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
    """Put them before an app that vLLM has built, the innermost first.

    Args:
        gate: None: no request is refused.
        tracing: None: no spans are made.
    """
    tell_errors(app)
    answer_http_errors(app)
    # Who waits, and who is refused.
    _add_middleware_to_built_app(app, AdmissionMiddleware, client=client, gate=gate, traces=tracing)
    # Who may enter, and what is read of the body.
    _add_middleware_to_built_app(app, DoorMiddleware, door=door)
    # What is said at the end, and what leaves until then.
    _add_middleware_to_built_app(app, StreamEndMiddleware, answers=answers, leaving=leaving)
