"""What a check returns, and what it has to know about the cluster the file is meant for."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from controller.errors import ConfigError
from controller.validation import shown
from serve_app.environment import DIRECT_STREAMING

BUILDER = "serve_app:build_app"
CONSOLE = "serve_app.console:build"
BATCHES = "serve_app.batches:build"
# There are two names, and Ray accepts a dot for the colon.
OURS = (BUILDER, "serve_app.build:build_app")


def builder_of(application: Mapping[str, Any]) -> str:
    """An application's ``import_path`` with a colon before the name; ours always as ``BUILDER``."""
    path = str(application.get("import_path", ""))
    if ":" not in path:
        path = ":".join(path.rsplit(".", 1))
    return BUILDER if path in OURS else path


def line(where: str, value: Any, message: str) -> str:
    """``place: value is not allowed: message``; without the value if it is a whole block."""
    scalar = value is None or isinstance(value, str | int | float)
    return f"{where}: {shown(value)} is not allowed: {message}" if scalar else f"{where}: {message}"


@dataclass(frozen=True)
class Target:
    """Where the configuration will run.

    Args:
        env: the environment of Ray's processes there.
        local_paths: model paths are meant for this machine, so they can be looked for.
        crd: KubeRay's schema of a RayService there; None: the one that is shipped.
        nodes: what Ray has of each resource on each node there; None: not known.
        grows: whether an autoscaler adds nodes there.
    """

    env: Mapping[str, str]
    local_paths: bool
    crd: Mapping[str, Any] | None = None
    nodes: Sequence[Mapping[str, float]] | None = None
    grows: bool = False

    @property
    def direct_streaming(self) -> bool:
        """Ray Serve LLM takes "1" for yes and everything else for no."""
        return self.env.get(DIRECT_STREAMING) == "1"


@dataclass(frozen=True)
class Findings:
    """Collects problems, notes, and one line per application without problems."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)

    def add(self, problems: list[str]) -> None:
        """Add ``problems``, less those found already."""
        self.problems.extend(line for line in problems if line not in self.problems)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect the problems of a ``ConfigError`` raised inside, and continue."""
        try:
            yield
        except ConfigError as error:
            self.add(error.problems)
