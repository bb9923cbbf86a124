"""What ``serve deploy`` imports: ``import_path: serve_app:build_app``."""

from typing import Any


def build_app(args: Any) -> Any:
    """``serve_app.build.build_app``.

    It is imported as it is called: the command line and the autoscaling policy live in this package
    too, and Ray Serve LLM takes seconds to import.
    """
    from serve_app.build import build_app

    return build_app(args)
