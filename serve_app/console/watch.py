"""Reads the fleet's state: once a second while a page is open, less often while none is."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from controller.errors import BrimfulError
from serve_app.console.view import Deployment, View

logger = logging.getLogger("ray.serve")
PERIOD_S, UNSEEN_PERIOD_S = 1.0, 5.0
OPEN_FOR_S = 10.0  # after its last question a page counts as closed

Read = Callable[[], Awaitable[tuple[dict[str, Any], Sequence[Deployment]]]]


class Watch:
    """The one reader for all open pages.

    Args:
        read: the controller's snapshot and Ray Serve's deployments; raises BrimfulError if there
            is no answer.
        unix_s: the clock.
    """

    def __init__(self, read: Read, unix_s: Callable[[], float] = time.time) -> None:
        self.view = View()
        self._read, self._unix_s = read, unix_s
        self._asked_s = float("-inf")
        self._wanted = asyncio.Event()
        self._fleet = self._packed(None)
        self._deployments: Sequence[Deployment] = ()

    @property
    def fleet(self) -> bytes:
        """``View.fleet`` as JSON, with ``error`` if the last read failed; made once per read."""
        now_s = self._unix_s()
        if now_s >= self._asked_s + OPEN_FOR_S:  # the first page that is opened waits for no period
            self._wanted.set()
        self._asked_s = now_s
        return self._fleet

    def deployment_of(self, replica_id: str) -> Deployment | None:
        """The deployment of this replica, as of the last read; None: unknown."""
        having = (one for one in self._deployments if replica_id in one.replica_ids)
        return next(having, None)

    def period_s(self) -> float:
        """Seconds between reads."""
        is_open = self._unix_s() < self._asked_s + OPEN_FOR_S
        return PERIOD_S if is_open else UNSEEN_PERIOD_S

    async def run(self) -> None:
        """Read for ever."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD_S)
            if (rest_s := self.period_s() - PERIOD_S) > 0:
                self._wanted.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), rest_s)

    async def look(self) -> None:
        """Read once; without an answer the last state stays."""
        try:
            snapshot, deployments = await self._read()
            self.view.look(snapshot, deployments, self._unix_s())
            self._deployments = deployments
            self._fleet = self._packed(None)
        except BrimfulError as error:
            self._fleet = self._packed(str(error))
        except Exception as error:  # after a failure the next read follows
            logger.exception("A look at the fleet failed.")
            told = {"error": f"the console cannot show the fleet: {type(error).__name__}"}
            self._fleet = json.dumps({**json.loads(self._fleet), **told}).encode()

    def _packed(self, error: str | None) -> bytes:
        return json.dumps({**self.view.fleet, "error": error}, allow_nan=False).encode()
