"""The other replicas of this deployment, which it calls once its engine is dead."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ray import serve
from ray.serve._private.replica import Replica

from replicas.server.carried import Moved

FOUND_S, LOOK_S = 5.0, 0.02  # for Ray Serve's controller to name the replicas


class Peers:
    """A handle to the deployment itself, made at first use: each handle costs updates.

    Args:
        context: Ray Serve's, of this replica.
    """

    def __init__(self, context: Any) -> None:
        self._own = context.replica_id.unique_id
        self._deployment, self._app = context.deployment, context.app_name
        self._handle: Any = None

    async def count(self) -> int:
        """The number of other replicas."""
        if self._handle is None:
            handle = serve.get_deployment_handle(self._deployment, self._app, _check_exists=False)
            self._handle = handle.options(stream=True)  # its updates begin here
        for _ in range(round(FOUND_S / LOOK_S)):
            router = self._handle._router._asyncio_router.request_router
            if router is not None and self._handle.running_replicas_populated():
                return sum(one.unique_id != self._own for one in list(router.curr_replicas))
            await asyncio.sleep(LOOK_S)
        return 0

    async def carry_on(self, moved: Moved) -> AsyncGenerator[Any, None]:
        """``Carried.carry_on`` of another replica.

        Raises:
            Exception: Ray's, from the call.
        """
        answer, ended = self._handle.carry_on.remote(moved), False
        try:
            async for item in answer:
                yield item
            ended = True
        finally:
            if not ended:
                answer.cancel()


def answer_unhealthy() -> None:
    """Make HAProxy send this replica nothing more; Ray Serve itself checks only every 10 s."""

    async def unhealthy(replica: Any) -> tuple[bool, str]:
        return False, "UNHEALTHY"

    Replica._dataplane_health_check = unhealthy
