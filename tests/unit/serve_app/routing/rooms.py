"""Replicas as a router knows them, by hand."""

import random
from typing import Any

from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.replica_load import Asked, ReplicaLoad

ASKED = Asked(500)
NOW_S = 1000.0


def room(taken_s: float = NOW_S, **fields: Any) -> ReplicaLoad:
    plain: dict[str, Any] = {
        "taken_unix_s": taken_s,
        "running": 10,
        "waiting": 0,
        "max_running": 20,
        "prompt_backlog_tokens": 0,
        "kv_free_tokens": 100_000,
        "arrivals": 0,
        "prefill_tokens_per_s": 1000.0,
        "drain_per_s": 2.0,
    }
    return ReplicaLoad(**plain | fields)


def chooser(rooms: dict[str, ReplicaLoad | None], **settings: Any) -> HeadroomChooser[str]:
    made: HeadroomChooser[str] = HeadroomChooser(rng=random.Random(0), **settings)
    for name, one in rooms.items():
        made.update(name, one, NOW_S)
    return made
