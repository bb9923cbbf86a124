"""``/v1/files`` and ``/v1/batches`` over HTTP, as OpenAI's clients know them."""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message

from controller.validation import shown
from replicas.admission.answers import error_body
from replicas.door.key_source import KeySource
from serve_app.batches.lines import ENDPOINTS
from serve_app.batches.store import Store
from serve_app.key_needed import KeyNeeded

WINDOW = re.compile(r"([1-9]\d{0,3})([hd])")
HOUR_S, DAY_S, LONGEST_WINDOW_S = 3600, 86400, 30 * 86400
CANCELLABLE = ("validating", "in_progress")
LIMIT = re.compile(r"[0-9]{1,6}")
MOST_LISTED, LISTED = 10_000, 20
MOST_METADATA, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512  # entries, and characters
METADATA = (
    f"an object is allowed of at most {MOST_METADATA} texts of at most {LONGEST_VALUE} characters,"
    f" by names of at most {LONGEST_KEY}"
)
LONGEST_BODY = 1 << 20  # bytes, of a request for a batch
CHUNK = 1 << 20

logger = logging.getLogger("ray.serve")


def batch_app(
    store: Store,
    work: Callable[[], Coroutine[Any, Any, None]],
    most_file_bytes: int,
    keys: KeySource | None = None,
) -> Starlette:
    """The application.

    Args:
        work: processes batches until it is cancelled.
        keys: one of these is needed; None: no key is needed.
    """
    api = _Api(store, most_file_bytes)

    async def worked() -> None:
        try:
            await work()
        except Exception:
            logger.exception("No batch is processed any more.")
            raise

    @contextlib.asynccontextmanager
    async def running(app: Starlette) -> AsyncIterator[None]:
        app.state.working = working = asyncio.create_task(worked())
        yield
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        store.close()

    return Starlette(
        routes=[
            Route("/v1/files", api.upload, methods=["POST"]),
            Route("/v1/files", api.list_files, methods=["GET"]),
            Route("/v1/files/{id}", api.file, methods=["GET"]),
            Route("/v1/files/{id}", api.delete_file, methods=["DELETE"]),
            Route("/v1/files/{id}/content", api.content, methods=["GET"]),
            Route("/v1/batches", api.create, methods=["POST"]),
            Route("/v1/batches", api.list_batches, methods=["GET"]),
            Route("/v1/batches/{id}", api.batch, methods=["GET"]),
            Route("/v1/batches/{id}/cancel", api.cancel, methods=["POST"]),
            Route("/health", _healthy, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _said, Exception: _failed},
        middleware=[]
        if keys is None
        else [Middleware(KeyNeeded, keys=keys, open_paths=("/health",))],
        lifespan=running,
    )


class Told(JSONResponse):
    """JSON in ASCII: text of clients may have characters that UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return json.dumps(content).encode()


class _Api:
    def __init__(self, store: Store, most_file_bytes: int) -> None:
        self._store, self._most_file_bytes = store, most_file_bytes

    async def upload(self, request: Request) -> Response:
        async with _bounded(request, "file", self._most_file_bytes).form() as form:
            file, purpose = form.get("file"), form.get("purpose")
            if not isinstance(file, UploadFile):
                raise _wrong("file", "a file is required, as multipart/form-data")
            if purpose != "batch":
                raise _wrong("purpose", f"{shown(purpose)} is not allowed: batch")
            name = file.filename or "file.jsonl"
            told = await asyncio.to_thread(self._store.add_file, name, "batch", file.file)
        return Told(told)

    async def list_files(self, request: Request) -> Response:
        after, limit = self._page(request, self._store.file, MOST_LISTED)
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise _wrong("order", f"{shown(order)} is not allowed: asc, desc")
        purpose = request.query_params.get("purpose")
        found = self._store.files(after, limit, purpose, newest_first=order == "desc")
        return _listed(found, limit)

    async def file(self, request: Request) -> Response:
        return Told(self._found(self._store.file, request))

    async def content(self, request: Request) -> Response:
        told = self._found(self._store.file, request)
        try:
            opened = await asyncio.to_thread(self._store.open_file, told["id"])
        except FileNotFoundError:
            raise _wrong("file_id", "its contents are gone", 404) from None

        async def chunks() -> AsyncIterator[bytes]:
            with opened:
                while chunk := await asyncio.to_thread(opened.read, CHUNK):
                    yield chunk

        return StreamingResponse(chunks(), media_type="application/octet-stream")

    async def delete_file(self, request: Request) -> Response:
        told = self._found(self._store.file, request)
        if self._store.reads(told["id"]):
            raise _wrong("file_id", "a batch that has not ended needs this file", 409)
        await asyncio.to_thread(self._store.delete_file, told["id"])
        return Told({"id": told["id"], "object": "file", "deleted": True})

    async def create(self, request: Request) -> Response:
        body = await _json(request)
        endpoint = body.get("endpoint")
        if endpoint not in ENDPOINTS:
            raise _wrong("endpoint", f"{shown(endpoint)} is not allowed: {', '.join(ENDPOINTS)}")
        file_id = body.get("input_file_id")
        if not isinstance(file_id, str) or not self._knows(file_id):
            raise _wrong("input_file_id", f"{shown(file_id)}: no such file")
        window = body.get("completion_window")
        window_s = _window_s(window)
        metadata = body.get("metadata")
        if metadata is not None and not _are_metadata(metadata):
            raise _wrong("metadata", METADATA)
        told = self._store.add_batch(endpoint, file_id, str(window), window_s, metadata)
        return Told(told)

    async def list_batches(self, request: Request) -> Response:
        after, limit = self._page(request, self._store.batch, LISTED)
        return _listed(self._store.batches(after, limit), limit)

    async def batch(self, request: Request) -> Response:
        return Told(self._found(self._store.batch, request))

    async def cancel(self, request: Request) -> Response:
        told = self._found(self._store.batch, request)
        cancelled = self._store.move(told["id"], "cancelling", only_from=CANCELLABLE)
        if cancelled is None:
            said = f"a batch that is {told['status']} cannot be cancelled"
            raise _wrong("batch_id", said, 409)
        return Told(cancelled)

    def _page(
        self, request: Request, find: Callable[[str], dict[str, Any] | None], usual: int
    ) -> tuple[str | None, int]:
        """After which object a page begins, and how many it has; ``usual``: the default."""
        text = request.query_params.get("limit", str(usual))
        if not LIMIT.fullmatch(text) or not 1 <= int(text) <= MOST_LISTED:
            raise _wrong("limit", f"{shown(text)} is not allowed: 1 to {MOST_LISTED}")
        after = request.query_params.get("after")
        if (
            after is not None and find(after) is None
        ):  # else the rest of the list would be lost silently
            raise _wrong("after", f"{shown(after)}: does not exist", 404)
        return after, int(text)

    def _knows(self, file_id: str) -> bool:
        return file_id.isascii() and self._store.file(file_id) is not None

    def _found(
        self, find: Callable[[str], dict[str, Any] | None], request: Request
    ) -> dict[str, Any]:
        told = find(request.path_params["id"])
        if told is None:
            raise _wrong("id", f"{shown(request.path_params['id'])}: does not exist", 404)
        return told


async def _healthy(request: Request) -> Response:
    return Response(status_code=503 if request.app.state.working.done() else 200)


def _bounded(request: Request, param: str, most_bytes: int) -> Request:
    """The request; it fails if more arrives than this size plus the lines of a form."""
    left = most_bytes + CHUNK

    async def receive() -> Message:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise _wrong(param, f"it is larger than {most_bytes >> 20} MiB", 413)
        return message

    return Request(request.scope, receive)


async def _json(request: Request) -> dict[str, Any]:
    try:
        body = await _bounded(request, "body", LONGEST_BODY).json()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise _wrong("body", "a JSON object is required")
    return body


def _window_s(window: Any) -> float:
    found = WINDOW.fullmatch(window) if isinstance(window, str) else None
    seconds = found and int(found[1]) * (HOUR_S if found[2] == "h" else DAY_S)
    if not seconds or seconds > LONGEST_WINDOW_S:
        raise _wrong("completion_window", f"{shown(window)} is not allowed: 24h, or 1h to 30d")
    return float(seconds)


def _are_metadata(metadata: Any) -> bool:
    return (
        isinstance(metadata, dict)
        and len(metadata) <= MOST_METADATA
        and all(len(key) <= LONGEST_KEY for key in metadata)
        and all(isinstance(one, str) and len(one) <= LONGEST_VALUE for one in metadata.values())
    )


def _listed(found: list[dict[str, Any]], limit: int) -> Response:
    data = found[:limit]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
    told = {"object": "list", "data": data, "has_more": len(found) > limit, **ends}
    return Told(told)


def _wrong(param: str, message: str, status: int = 400) -> HTTPException:
    told = error_body(status, f"{param}: {message}", param)
    return HTTPException(status, told)  # type: ignore[arg-type]


async def _said(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told: Any = error.detail
    if not isinstance(told, dict):
        told = error_body(error.status_code, str(told), "path")
    return Told(told, error.status_code, error.headers)


async def _failed(*_: Any) -> Response:
    return Told(error_body(500, "internal error; the log has it"), 500)
