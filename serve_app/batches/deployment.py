"""The batch application in Ray Serve: one replica, which keeps its state in a folder."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray import serve
from starlette.applications import Starlette

from controller.errors import ConfigError
from controller.metrics import METRICS
from replicas.door.key_source import KeySource
from replicas.server.metrics import Exported
from serve_app.batches.app import batch_app
from serve_app.batches.arguments import settings_of
from serve_app.batches.runner import Runner, Value
from serve_app.batches.sender import Sender
from serve_app.batches.store import Store

MOST_OPEN = 256  # requests that are sent at once
MOST_FILE_BYTES = 512 << 20  # of an uploaded file


class BatchMetrics:
    """Exports the runner's figures, a few times a second."""

    def __init__(self) -> None:
        self._exported = Exported(one for one in METRICS if one.by == "batches")

    def publish(self, now: tuple[Value, ...], totals: tuple[Value, ...]) -> None:
        """Export it."""
        self._exported.set(now)
        self._exported.count(totals)


def build(args: Mapping[str, Any]) -> serve.Application:
    """Files and batches, to be mounted wherever a config says, ``/batches`` by custom.

    Clients take ``http://HOST:PORT/batches/v1`` as their base URL.

    Args:
        args: see ``BatchSettings``.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    settings = settings_of(args)

    def app() -> Starlette:
        store = Store(Path(settings.folder), settings.storage)
        api_key = None
        if settings.api_key_env is not None:
            api_key = os.environ.get(settings.api_key_env)
            if api_key is None:
                where = f"api_key_env: {settings.api_key_env!r} is not set in this environment"
                raise ConfigError([where])
        keys = settings.security.keys

        async def work() -> None:
            sender = Sender(settings.serves, api_key, MOST_OPEN)
            try:
                await Runner(
                    store,
                    sender.send,
                    settings.service_tier,
                    MOST_OPEN,
                    urgent_tier=settings.urgent_tier,
                    publish=BatchMetrics().publish,
                ).run()
            finally:
                await sender.close()

        source = None if keys is None else KeySource(keys)
        return batch_app(store, work, MOST_FILE_BYTES, source)

    deployment = serve.deployment(
        serve.ingress(app)(),
        name="Batches",
        num_replicas=1,  # only one of several would process batches
        max_ongoing_requests=256,
        # On the head node: the folder is on one node, and the head always has a proxy.
        ray_actor_options={"num_cpus": 0, "resources": {"node:__internal_head__": 0.001}},
    )
    return deployment.bind()
