"""OpenAI's batch API over an application of ours: ``import_path: serve_app.batches:build``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serve_app.batches.deployment import build

__all__ = ["build"]


def __getattr__(name: str) -> Any:
    # Lazily: files are checked without Ray Serve.
    if name == "build":
        from serve_app.batches.deployment import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
