"""A read-only page about a running fleet: ``import_path: serve_app.console:build``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serve_app.console.deployment import build

__all__ = ["build"]


def __getattr__(name: str) -> Any:
    # Lazily: the page's data and files are also used without Ray Serve.
    if name == "build":
        from serve_app.console.deployment import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
