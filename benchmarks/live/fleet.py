"""A separate cluster on this machine, and its application."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.report.document import ROOT
from serve_app.launch.local_cluster import LocalCluster, local_cluster


class Deployed:
    """A cluster and the application on it, served at ``port``."""

    def __init__(self, cluster: LocalCluster, directory: Path, port: int) -> None:
        self.cluster, self._directory, self._port = cluster, directory, port

    def deploy(self, application: dict[str, Any], timeout_s: float | None = None) -> None:
        """Deploy only this application; returns once Ray has accepted it.

        Args:
            timeout_s: return once it runs, within this time; None: do not wait.
        """
        config = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "127.0.0.1", "port": self._port},
            "applications": [application],
        }
        path = self._directory / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        self.cluster.deploy(path)
        if timeout_s is not None:
            self.cluster.wait_running(timeout_s, lambda state: print(state, file=sys.stderr))


def stats_port(port: int) -> int:
    """The port of HAProxy's statistics."""
    return port + 300


@contextlib.contextmanager
def cluster_at(
    port: int, cpus: int = 2, resources: dict[str, float] | None = None
) -> Iterator[tuple[LocalCluster, Path]]:
    """A cluster and a temporary folder, for a ``with`` block.

    Args:
        port: HAProxy's fixed ports are moved with it, as another cluster may use them.
    """
    environment = {
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(port + 1000),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port(port)),
    }
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(
            environment, directory=ROOT, logs=Path(directory), cpus=cpus, resources=resources
        ) as cluster,
    ):
        yield cluster, Path(directory)
