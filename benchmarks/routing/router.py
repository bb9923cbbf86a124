"""Every way of routing behind one deployment, by a word in the request: for comparisons only."""

import random

from ray import cloudpickle
from ray.serve._private.request_router.common import PendingRequest
from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter
from ray.serve._private.request_router.replica_wrapper import RunningReplica
from ray.serve.experimental.round_robin_router import RoundRobinRouter

from serve_app.routing import router
from serve_app.routing.room import read_room
from serve_app.routing.router import HeadroomRouter

cloudpickle.register_pickle_by_value(router)

Ranks = list[list[RunningReplica]]


class ByName(HeadroomRouter, RoundRobinRouter, PowerOfTwoChoicesRequestRouter):
    """Ray Serve's own routers, least load and ours, whichever the request's ``user`` names."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> Ranks:
        args = pending_request.args if pending_request is not None else []
        named = getattr(args[0], "user", None) if args else None
        if named == "round_robin":
            return await RoundRobinRouter.choose_replicas(self, candidate_replicas, pending_request)
        if named == "power_of_two":
            return await PowerOfTwoChoicesRequestRouter.choose_replicas(
                self, candidate_replicas, pending_request
            )
        if named == "least_load":
            return [[self._least_loaded(candidate_replicas)]]
        return await HeadroomRouter.choose_replicas(self, candidate_replicas, pending_request)

    def _least_loaded(self, replicas: list[RunningReplica]) -> RunningReplica:
        """The fewest running and waiting requests by the last statistics; one of the equal ones."""
        loads = []
        for replica in replicas:
            room = read_room(replica.routing_stats)
            loads.append(room.running + room.waiting if room else 0)
        fewest = min(loads)
        return random.choice(
            [one for one, load in zip(replicas, loads, strict=True) if load == fewest]
        )
