"""OpenAI's batch API over an application of ours: ``import_path: serve_app.batches:build``."""

from typing import Any


def build(args: Any) -> Any:
    """``serve_app.batches.deployment.build``; what a file holds is checked without Ray Serve."""
    from serve_app.batches.deployment import build

    return build(args)
