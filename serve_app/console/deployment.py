"""The console as a Ray Serve application of its own."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve._private.constants import SERVE_NAMESPACE
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException
from starlette.applications import Starlette

from controller.errors import BrimfulError
from controller.fleet.actor import find_controller
from controller.fleet.packed_snapshot import opened
from replicas.door.key_source import KeySource
from serve_app.console.app import console_app
from serve_app.console.arguments import keys_of
from serve_app.console.view import Deployment, deployments_of
from serve_app.console.watch import Watch
from serve_app.replica_calls import ask
from serve_app.snapshot import unanswered

ANSWER_S = 5.0
SERVE_EVERY = 5  # reads: Ray Serve's controller is asked only in one of so many


class Cluster:
    """Asks the batch controller, and less often Ray Serve's controller."""

    def __init__(self) -> None:
        self._controller: Any = None  # an actor handle; None: to be found
        self._deployments: Sequence[Deployment] = ()
        self._looks = 0

    async def read(self) -> tuple[dict[str, Any], Sequence[Deployment]]:
        """What ``Watch`` shows.

        Raises:
            BrimfulError: there is no controller of this version, or it does not answer.
        """
        try:
            if self._controller is None:
                self._controller = await asyncio.to_thread(find_controller)
            glance = await asyncio.wait_for(self._controller.packed_snapshot.remote(), ANSWER_S)
        except (RayError, RuntimeError, OSError, ValueError) as error:
            if not isinstance(error, TimeoutError):
                self._controller = None
            raise unanswered(error) from None
        if self._looks % SERVE_EVERY == 0:
            self._deployments = await self._serves()
        self._looks += 1
        return opened(glance), self._deployments

    async def _serves(self) -> Sequence[Deployment]:
        """Ray Serve's deployments; the last known ones if it does not answer."""
        try:
            asked = _get_global_client()._controller.get_serve_instance_details.remote()
            return deployments_of(await asyncio.wait_for(asked, ANSWER_S))
        except (TimeoutError, RayError, RayServeException):
            return self._deployments

    async def timeline(self, deployment: Deployment, replica_id: str) -> dict[str, Any]:
        """The last minute of a replica, as ``replicas.server.minute.Minute`` has it.

        Raises:
            BrimfulError: it is gone, or does not answer.
        """
        where = DeploymentID(deployment.name, deployment.application)
        name = ReplicaID(replica_id, where).to_full_id_str()
        try:
            actor = await asyncio.to_thread(ray.get_actor, name, SERVE_NAMESPACE)
            answer = ask(actor, deployment.application, "timeline")
            known: dict[str, Any] = await asyncio.wait_for(answer, ANSWER_S)
        except (TimeoutError, ValueError, RayError) as error:
            said = f"replica {replica_id} does not say who held its slots"
            raise BrimfulError(f"{said} ({type(error).__name__})") from None
        return known


def build(args: Mapping[str, Any]) -> serve.Application:
    """The console, to be mounted wherever a config says, ``/console`` by custom.

    Args:
        args: ``security: {keys: ...}`` as in a model's application; without it no key is needed.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    keys = keys_of(args)

    def app() -> Starlette:
        cluster = Cluster()
        source = None if keys is None else KeySource(keys)
        return console_app(Watch(cluster.read), source, cluster.timeline)

    deployment = serve.deployment(
        serve.ingress(app)(),
        name="Console",
        num_replicas=1,
        ray_actor_options={"num_cpus": 0},
    )
    return deployment.bind()
