"""A Serve config for one model, as ``configs/h100.yaml`` is written."""

from pathlib import Path
from typing import Any

import yaml

from controller.errors import ConfigError
from serve_app.checks.findings import BUILDER, CONSOLE

Data = dict[str, Any]
LOOPBACK = "127.0.0.1"
PORT = 8000


def document(
    entry: Data,
    *,
    name: str = "llm",
    host: str = LOOPBACK,
    port: int = PORT,
    console: bool = False,
) -> Data:
    """The whole file.

    Args:
        entry: of ``llm_configs``.
        name: of the application.
        console: whether the console is served, too.
    """
    application = {
        "name": name,
        "route_prefix": "/",
        "import_path": BUILDER,
        "args": {"llm_configs": [entry]},
    }
    shown = {"name": "console", "route_prefix": "/console", "import_path": CONSOLE}
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": host, "port": port},
        "applications": [application, *([shown] if console else [])],
    }


def autoscaled(least: int, most: int) -> Data:
    """An ``autoscaling_config`` that sees load within seconds."""
    return {
        "min_replicas": least,
        "max_replicas": most,
        "metrics_interval_s": 2,
        "look_back_period_s": 10,
    }


def write(config: Data, head: str, path: Path) -> None:
    """Write it under a comment.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.write_text(head + yaml.safe_dump(config, sort_keys=False))
    except OSError as error:
        raise ConfigError([f"--write: {path} cannot be written: {error.strerror}"]) from None
