"""One request of a batch, sent over HTTP as any client would."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

CONNECT_S = 10.0
REFUSED = frozenset({0, 429, 503})
FAILED = frozenset({500, 502, 504})  # another try may go to another replica


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Args:
        status: of HTTP; 0: nothing came, the server was not reached or went away.
        body: JSON; where it was none, an error object.
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
            async with self._session.post(url, json=body) as response:
                raw = await response.read()
                try:
                    told = await response.json(content_type=None)
                except (ValueError, UnicodeDecodeError):
                    told = {"error": {"message": raw[:500].decode(errors="replace")}}
                return Answer(
                    response.status,
                    told,
                    response.headers.get("x-request-id", ""),
                    _seconds(response.headers.get("retry-after")),
                )
        except (TimeoutError, aiohttp.ClientError, OSError):
            return Answer(0)

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
