"""The time between tokens as the engine counted it, asked of the batch controller of a cluster.

In a process of its own that ends at once: a driver that stays would share the cores with the load.
``python -m benchmarks.path.engine_itl ADDRESS`` prints the counts of the cluster's one replica.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.report.document import ROOT
from controller.models.histogram import lower_edge_s
from serve_app.launch.running import ClusterError

Histogram = tuple[int, ...]  # counts per bin of ``controller.models.histogram``
EXCHANGES_S = 1.5  # until the last steps are in a report


def engine_itl(address: str | None) -> Histogram:
    """Counts since the engine started.

    Args:
        address: of the Ray cluster.
    """
    time.sleep(EXCHANGES_S)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.path.engine_itl", str(address)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ClusterError(f"the batch controller did not answer:\n{done.stderr[-2000:]}")
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def since(now: Histogram, earlier: Histogram) -> Histogram:
    """What was counted in between."""
    return tuple(a - b for a, b in zip(now, earlier, strict=True))


def percentile_ms(counts: Sequence[int], percent: float) -> float:
    """Interpolated inside its bin, which is 12% wide; 0 where nothing was counted."""
    rank, seen = sum(counts) * percent / 100, 0
    for index, count in enumerate(counts):
        if count and seen + count >= rank:
            low_s, high_s = lower_edge_s(index), lower_edge_s(index + 1)
            return 1000 * (low_s + (high_s - low_s) * (rank - seen) / count)
        seen += count
    return 0.0


def _print_counts(address: str) -> None:
    import ray

    from controller.fleet.actor import find_controller

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    groups = ray.get(find_controller().snapshot.remote(), timeout=30)["groups"]
    (replica,) = [one for group in groups.values() for one in group["replicas"].values()]
    print(json.dumps(replica["report"].itl.counts))


if __name__ == "__main__":
    _print_counts(sys.argv[1])
