"""A deployment that does nothing, on each lasting worker, so that Serve removes its replica last.

Ray Serve 2.60 takes replicas from the nodes with the fewest first, and of nodes with as many from
the one whose replica is the oldest: without an anchor lasting workers would stand empty while spot
ones work (decision 44).
"""

from typing import Any

from pydantic import Field
from ray import serve
from ray.serve import Application

from controller.config import Block
from controller.validation import parse

RESOURCE = "lasting"  # of a worker, one each (``rayStartParams.resources``)


class AnchorArgs(Block):
    """``args`` of the application."""

    workers: int = Field(ge=1, description="lasting workers")


class Anchor:
    """It is never called."""


def build(args: dict[str, Any]) -> Application:
    """An anchor for each of ``workers``.

    Raises:
        ConfigError: ``args`` is wrong.
    """
    given = parse(AnchorArgs, args, "args")
    options = {"num_cpus": 0, "resources": {RESOURCE: 1}}
    return serve.deployment(
        Anchor, name="Anchor", num_replicas=given.workers, ray_actor_options=options
    ).bind()
