"""What ``serve deploy`` imports: ``import_path: serve_app:build_app``."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serve_app.build import build_app

__all__ = ["build_app"]


def __getattr__(name: str) -> Any:
    # Lazily: the command line and the autoscaling policy live in this package too, and Ray Serve
    # LLM takes seconds to import.
    if name == "build_app":
        from serve_app.build import build_app

        return build_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
