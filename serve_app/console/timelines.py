"""Batch timelines of replicas, asked for once a second at most, however many pages show one."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from controller.errors import BrimfulError
from serve_app.console.deployments import Deployment

FRESH_S = 0.9  # for so long an answer is handed out again
MOST = 32  # replicas whose last answer is kept

Ask = Callable[[Deployment, str], Awaitable[dict[str, Any]]]


class Timelines:
    """Asks replicas, for pages.

    Args:
        ask: one replica of a deployment for its last minute; raises BrimfulError where there is no
            answer.
        clock: seconds, that only grow.
    """

    def __init__(self, ask: Ask, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._known: dict[str, tuple[float, asyncio.Future[dict[str, Any]]]] = {}

    async def of(self, deployment: Deployment, replica_id: str) -> dict[str, Any]:
        """The last minute of this replica, as ``replicas.server.timeline_link.Minute`` has it.

        Raises:
            BrimfulError: it does not answer.
        """
        now_s = self._clock()
        asked_s, asking = self._known.get(replica_id, (float("-inf"), None))
        if asking is None or now_s >= asked_s + FRESH_S:
            asking = asyncio.ensure_future(self._ask(deployment, replica_id))
            self._known.pop(replica_id, None)
            while len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[replica_id] = now_s, asking
        try:
            return await asyncio.shield(asking)  # a page that leaves takes it from no other
        except BrimfulError:
            self._known.pop(replica_id, None)
            raise
