"""Applications that are taken away, and waited for until their streams have ended."""

import time
from collections.abc import Callable, Collection

from serve_app.apply.cluster import Cluster, beside
from serve_app.launch.running import describe

POLL_S = 1.0


def remove(cluster: Cluster, names: Collection[str]) -> None:
    """Have Serve end these applications; others stay as they are."""
    others = {name: one for name, one in cluster.applications().items() if name not in names}
    cluster.put({"applications": beside(others, {})})


def wait_gone(cluster: Cluster, names: Collection[str], say: Callable[[str], None]) -> None:
    """Return once they are gone.

    Args:
        say: told what is still there, whenever that changes.
    """
    state = ""
    while left := {n: one for n, one in cluster.applications().items() if n in names}:
        if (now := describe(left)) != state:
            say(now)
            state = now
        time.sleep(POLL_S)
