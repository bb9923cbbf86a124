from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.checks.command import check_file
from serve_app.checks.findings import Findings, Target
from tests.manifests import shipped
from tests.serve_configs import HERE


@pytest.fixture
def check(tmp_path: Path, quick_pickle: None):
    """``brimful check`` on plain data or YAML text."""

    def check(data: Any, target: Target = HERE) -> Findings:
        path = tmp_path / "serve.yaml"
        path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
        return check_file(path, target)

    return check


@pytest.fixture
def dead_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's proxy for everything, which does not answer."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "corp.example")  # set, so that it is put back
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def service() -> dict[str, Any]:
    """The RayService of k8s/base."""
    return shipped()
