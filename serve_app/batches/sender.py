"""One request of a batch, sent over HTTP as any client would."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

CONNECT_S = 10.0
TIMED_OUT = 408  # a timeout of the server is too short for the request, or for so many at once
# Not answers to the request: server not reached (0), unknown key, or overload.
REFUSED = frozenset({0, 401, TIMED_OUT, 429, 503})
LOADED = frozenset({TIMED_OUT, 429, 503})  # overload, without a reason
FAILED = frozenset({500, 502, 504})  # another try may go to another replica
# Without JSON it comes from Ray's proxy, which has no application (yet): models answer in JSON.
NO_JSON = {404: 0, 200: 502}

logger = logging.getLogger("ray.serve")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Args:
        status: of HTTP; 0: the application was not reached, or went away.
        body: JSON; an error object if the answer was none.
        retry_after_s: what the server asked for.
    """

    status: int
    body: Any = None
    request_id: str = ""
    retry_after_s: float | None = None


class Sender:
    """Sends to one address.

    Args:
        serves: the address of ``/v1``.
        most: connections at once.
    """

    def __init__(self, serves: str, api_key: str | None, most: int) -> None:
        self._serves = serves
        self._away = False
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=most),
            # An answer may take hours where others come first; the batch's own end bounds it.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )

    async def send(self, endpoint: str, body: Mapping[str, Any]) -> Answer:
        """The server's answer."""
        url = self._serves + endpoint.removeprefix("/v1")
        try:
            sent = json.dumps(body)
        except RecursionError:
            return Answer(400, _error("the body is nested too deeply"))
        answer = await self._answer(url, sent)
        away = answer.status in REFUSED - LOADED
        if away and not self._away:
            logger.warning("Batches wait: %s answers %s.", url, answer.status or answer.body)
        self._away = away
        return answer

    async def _answer(self, url: str, sent: str) -> Answer:
        headers = {"Content-Type": "application/json"}
        try:
            async with self._session.post(url, data=sent, headers=headers) as response:
                raw, status = await response.read(), response.status
                try:
                    told = json.loads(raw)
                except (ValueError, RecursionError):
                    told = _error(raw[:500].decode(errors="replace"))
                    status = NO_JSON.get(status, status)
                return Answer(
                    status,
                    told,
                    response.headers.get("x-request-id", ""),
                    _seconds(response.headers.get("retry-after")),
                )
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return Answer(0, _error(f"{type(error).__name__}: {error}"))

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
