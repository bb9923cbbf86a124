"""Applications that are taken away, and waited for until their streams have ended."""

import time
from collections.abc import Callable, Collection
from typing import Any

from controller.errors import BrimfulError
from serve_app.apply.cluster import Cluster, beside
from serve_app.launch.running import AWAY_S, describe

POLL_S = 1.0


def remove(cluster: Cluster, names: Collection[str]) -> None:
    """Have Serve end these applications; others, and those deployed from code, stay as they are."""
    others = {name: one for name, one in cluster.applications().items() if name not in names}
    cluster.put({"applications": beside(others, {})})


def wait_gone(
    cluster: Cluster,
    names: Collection[str],
    say: Callable[[str], None],
    away_s: float = AWAY_S,
) -> dict[str, Any]:
    """Return once they are gone; the applications that run then.

    Args:
        say: told what is still there, whenever that changes.
        away_s: so long Ray's interface may not answer.

    Raises:
        BrimfulError: it did not answer for longer.
    """
    state, seen_s = "", time.monotonic()
    while True:
        try:
            running = cluster.applications()
        except BrimfulError:
            if time.monotonic() - seen_s >= away_s:
                raise
        else:
            seen_s = time.monotonic()
            left = {name: one for name, one in running.items() if name in names}
            if not left:
                return running
            if (now := describe(left)) != state:
                say(now)
                state = now
        time.sleep(POLL_S)
