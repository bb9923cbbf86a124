"""Errors of Ray Serve LLM's ingress in the form of OpenAI's API.

The same for errors that FastAPI itself makes in vLLM's app (no such route or method, a body that
cannot be decoded): vLLM 0.29 has a handler only for FastAPI's subclass.

A server error goes to the log with its stack. The client gets only the ID of the log entry, nothing
about the cluster.
"""

import json
import logging
import random
from collections.abc import Mapping
from http.client import responses
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from ray.exceptions import RayError, RayTaskError
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ErrorResponse,
    OpenAIHTTPException,
)
from ray.llm._internal.serve.core.ingress.middleware import get_request_id
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

from controller.validation import shown
from replicas.admission.answers import SERVER_ERROR, error_body, no_replica
from replicas.admission.asgi import App, Message, Receive, Send

# A replica died, or the queue for one is full.
GONE = (RayError, BackPressureError, DeploymentUnavailableError)
RAW = (ValueError, TypeError, OverflowError)  # vLLM treats these as the client's fault
GONE_SAID = "no replica served this request; it can be sent again"
logger = logging.getLogger("ray.serve")


class RefusalError(Exception):
    """A replica refused a request; has the answer's headers."""

    def __init__(self, refused: ErrorResponse, headers: dict[str, str]) -> None:
        self.refused, self.headers = refused, headers
        super().__init__(refused.error.message)


def answer_errors(app: FastAPI) -> None:
    """Make an ingress' app answer all errors like this."""
    app.add_exception_handler(RequestValidationError, _malformed)
    answer_http_errors(app)
    app.user_middleware.append(Middleware(_Raised))  # inside of Ray's own


def answer_http_errors(app: FastAPI) -> None:
    """Make an app, Ray's or vLLM's, answer FastAPI's own errors like this."""
    app.add_exception_handler(HTTPException, _of_fastapi)


class _Raised:
    """ASGI middleware: answers errors that the app raises before its answer has begun."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception as error:
            if begun:
                raise
            request = Request(scope)
            await answer_to(error, get_request_id(request))(scope, receive, send)


def answer_to(error: Exception, request_id: str | None) -> Response:
    """The answer to a request for which the ingress or a replica raised this error."""
    if isinstance(error, RefusalError):
        told = error.refused.error
        return _answer(told.code, told.message, told.type, told.param, error.headers)
    if isinstance(error, GONE) and not isinstance(error, RayTaskError):
        logger.warning("No replica served request %s: %s", request_id, error)
        gone = no_replica(GONE_SAID, random.random())
        return _answer(gone.status, gone.message, headers=gone.headers)
    if isinstance(error, OpenAIHTTPException):
        return _answer(error.status_code, error.message, error.type)
    cause = error.cause if isinstance(error, RayTaskError) else error
    told = create_error_response(cause).error  # as vLLM's own app answers, without paths
    # Ray's engine answers vLLM's errors on a request: other errors are the replica's own.
    own = cause is not error and isinstance(cause, RAW)
    if own or told.code >= SERVER_ERROR:
        logger.error("Request %s failed.", request_id, exc_info=error)
        code = max(told.code, SERVER_ERROR)
        return _answer(code, f"internal error; the log has it as request {request_id}")
    return _answer(told.code, told.message, told.type, told.param)


async def _malformed(request: Request, error: Any) -> Response:
    """A body that the route does not accept: FastAPI's first error, and its field."""
    kind = request.headers.get("content-type", "")
    if "json" not in kind.partition(";")[0].lower() and not kind.lower().startswith("multipart/"):
        said = f"content-type: {shown(kind)} is not allowed: application/json"
        return _answer(400, said, param="content-type")
    first: Mapping[str, Any] = next(iter(error.errors()), {})
    place = [str(part) for part in first.get("loc", ()) if part != "body"]
    if first.get("type") == "json_invalid" or not place:
        place = ["body"]
    return _answer(400, f"{'.'.join(place)}: {first.get('msg', 'is malformed')}", param=place[0])


async def _of_fastapi(request: Request, error: Any) -> Response:
    said, param = str(error.detail), None
    if said == responses.get(error.status_code):  # an unknown route or method
        said = f"{request.method} {shown(get_route_path(request.scope))}: {said}"
    if isinstance(error.__cause__, ValueError):  # FastAPI does not say which error the body has
        why = str(error.__cause__).partition(";")[0]  # without Python's advice about long numbers
        said = f"body: {why}; allowed: JSON in UTF-8, not compressed"
        param = "body"
    return _answer(error.status_code, said, None, param, error.headers)


def _answer(
    status: int,
    message: str,
    kind: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = json.dumps(error_body(status, message, param, kind))
    headers = {"content-type": "application/json", **(headers or {})}
    return Response(body, status, headers)
