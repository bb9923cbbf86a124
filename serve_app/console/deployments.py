"""Which deployment a replica belongs to, and how many replicas Ray Serve wants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.config import EMULATED_SERVER, SERVER
from serve_app.pd import NAME_PREFIX

PLAIN, EMULATED = (f"{path.rpartition(':')[2]}:" for path in (SERVER, EMULATED_SERVER))
OURS = (PLAIN, EMULATED, *NAME_PREFIX.values())


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment of ours, as Ray Serve has it.

    Args:
        model: the model's name, as Ray Serve spells it in the name of a deployment.
        emulated: its accelerator is emulated.
        running, wanted: replicas; the present number, and the number to reach.
        replica_ids: all present ones, also if they start or stop.
    """

    application: str
    name: str
    model: str
    emulated: bool
    status: str
    running: int
    wanted: int
    replica_ids: tuple[str, ...]


def deployments_of(details: Mapping[str, Any]) -> list[Deployment]:
    """Our deployments in the answer of Ray Serve's REST interface, in its order."""
    return [
        _deployment(application, one)
        for application, known in details["applications"].items()
        for one in known["deployments"].values()
        if one["name"].startswith(OURS)
    ]


def _deployment(application: str, details: Mapping[str, Any]) -> Deployment:
    name, replicas = details["name"], details["replicas"]
    return Deployment(
        application=application,
        name=name,
        model=name.partition(":")[2],
        emulated=name.startswith(EMULATED),
        status=str.__str__(details["status"]),  # of an enum: its value
        running=sum(one["state"] == "RUNNING" for one in replicas),
        wanted=details["target_num_replicas"],
        replica_ids=tuple(one["replica_id"] for one in replicas),
    )
