"""Configurations that Ray documents: they build, and ``brimful check`` says the same."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.errors import ConfigError
from serve_app.checks.built import no_cluster
from serve_app.checks.findings import BUILDER

DOCUMENTED = yaml.safe_load((Path(__file__).parent / "ray_documented.yaml").read_text())


def build(case: dict[str, Any]) -> str | None:
    """Build the application; what it is refused with, or None."""
    module, name = case.get("builder", BUILDER).split(":")
    builder: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    try:
        with no_cluster():
            builder(case["args"])
    except ConfigError as error:
        return error.problems[0]
    return None


@pytest.mark.parametrize("name", DOCUMENTED)
def test_it_builds_and_the_check_says_the_same(check, name) -> None:
    case = DOCUMENTED[name]
    path = case.get("builder", BUILDER)
    found = check({"applications": [{"name": "a", "import_path": path, "args": case["args"]}]})
    refused = build(case)
    assert (refused is not None) == bool(found.problems), (refused, found.problems)
    if "refused" in case:
        assert case["refused"] in found.problems[0]
        assert refused is not None and case["refused"] in refused
    else:
        assert refused is None
