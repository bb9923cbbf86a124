"""Calls of one replica by its name, made as Ray Serve's own handles make them.

Ray Serve has no such calls: its handles choose a replica, or call all of a deployment.
"""

import pickle
from typing import Any
from uuid import uuid4

from ray.actor import ActorHandle
from ray.serve._private.common import ReplicaID, RequestMetadata
from ray.serve._private.constants import SERVE_NAMESPACE
from ray.util import list_named_actors

from controller.errors import BrimfulError


def find_replica(replica_id: str) -> ReplicaID:
    """A running replica by the id that ``brimful status`` shows.

    Raises:
        BrimfulError: Ray Serve has no replica with this id.
    """
    for known in list_named_actors(all_namespaces=True):
        name = str(known["name"])
        if known["namespace"] == SERVE_NAMESPACE and name.endswith(f"#{replica_id}"):
            return ReplicaID.from_full_id_str(name)
    raise BrimfulError(f"replica {replica_id} is gone: Ray Serve has none of that id")


def ask(actor: ActorHandle, application: str, method: str, *args: Any) -> Any:
    """Call a method of a replica's server class; returns an ``ObjectRef``.

    Args:
        actor: the replica's.
        application: the replica's.
    """
    asked = RequestMetadata(
        request_id="brimful",
        internal_request_id=uuid4().hex,
        call_method=method,
        app_name=application,
    )
    return actor.handle_request.remote(pickle.dumps(asked), *args)
