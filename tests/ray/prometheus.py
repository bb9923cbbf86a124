"""A real Prometheus that scrapes a node, with the shipped alerts."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.monitoring.shipped import PLAIN
from tests.ray.conftest import free_ports


@contextmanager
def prometheus(folder: Path, metrics_port: int) -> Iterator[str]:
    """It runs until the context ends; its URL."""
    target = {"targets": [f"127.0.0.1:{metrics_port}"]}
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(PLAIN)],
        "scrape_configs": [{"job_name": "ray", "static_configs": [target]}],
    }
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    command = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    process = subprocess.Popen(command)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def answer(url: str, query: str) -> list[Any]:
    """The series that a query has now; none before Prometheus listens.

    Raises:
        AssertionError: it refuses the query.
    """
    try:
        told = requests.get(f"{url}/api/v1/query", params={"query": query}, timeout=30)
    except requests.ConnectionError:
        return []
    assert told.ok or told.status_code == 503, f"{query}: {told.text}"
    return told.json()["data"]["result"] if told.ok else []


def rule_health(url: str) -> list[str]:
    """Whether each alert's last evaluation succeeded."""
    told = requests.get(f"{url}/api/v1/rules", timeout=30).json()
    return [rule["health"] for group in told["data"]["groups"] for rule in group["rules"]]
