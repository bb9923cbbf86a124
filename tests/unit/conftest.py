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
def service() -> dict[str, Any]:
    """The RayService of k8s/base."""
    return shipped()
