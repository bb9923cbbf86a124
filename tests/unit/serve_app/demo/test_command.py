"""The demo before anything is started."""

import argparse
import contextlib
import socket
import tempfile
from pathlib import Path

import pytest
import yaml

from serve_app.demo import command as demo
from serve_app.demo.stack import CONFIG
from serve_app.launch.running import ClusterError


def test_where_its_port_is_taken_it_says_so_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    port = yaml.safe_load(CONFIG.read_text())["http_options"]["port"]
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # it is taken by another program already
            other.bind(("127.0.0.1", port))
            other.listen()
        with pytest.raises(ClusterError, match=f"port {port} is in use"):
            demo.run(parser.parse_args([]))
    assert list(tmp_path.iterdir()) == []
