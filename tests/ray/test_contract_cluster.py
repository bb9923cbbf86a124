"""What the clusters of this machine's own set, so that they end at once: Ray still has it.

No cluster is started: it shows in Ray's modules.
"""

import inspect

from ray._private import ray_constants
from ray._private.node import Node

from benchmarks.live.cluster import DRAIN


def test_a_node_that_is_ended_still_drains_for_half_a_minute_unless_it_is_told_not_to() -> None:
    assert ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S == 30
    assert DRAIN in inspect.getsource(ray_constants)
    source = inspect.getsource(Node)
    assert "timeout_s = ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" in source
