"""A read-only page about a running fleet: ``import_path: serve_app.console:build``."""

from typing import Any


def build(args: Any) -> Any:
    """``serve_app.console.deployment.build``; the page is of use without Ray Serve."""
    from serve_app.console.deployment import build

    return build(args)
