"""What a check hands back, what it has to know about the place that the file is meant for, and what
stands at a place of plain data.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from controller.errors import ConfigError
from controller.validation import join, shown
from serve_app.environment import DIRECT_STREAMING

BUILDER = "serve_app:build_app"
CONSOLE = "serve_app.console:build"
BATCHES = "serve_app.batches:build"
# There are two names, and Ray accepts a dot for the colon.
OURS = (BUILDER, "serve_app.build:build_app")
RAY_SERVICE = "RayService"
CLUSTER = "spec.rayClusterConfig"


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
        nodes: what Ray has of each resource on each node there; None: not known.
        grows: whether an autoscaler adds nodes there.
    """

    env: Mapping[str, str]
    local_paths: bool
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


@dataclass(frozen=True)
class Pods:
    """Pods of Ray that are alike.

    Args:
        place: of their spec in the object.
        spec: a pod's; empty if it is not a mapping.
    """

    place: str
    spec: Mapping[str, Any]
    is_head: bool


def dig(value: Any, *keys: str) -> Any:
    """The value below ``keys``; None: there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping below ``keys``; empty if there is none."""
    found = dig(value, *keys)
    return found if isinstance(found, Mapping) else {}


def listed(value: Any, *keys: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The mappings of the list below ``keys``, each with its index."""
    found = dig(value, *keys)
    items = enumerate(found) if isinstance(found, list) else ()
    return [(index, one) for index, one in items if isinstance(one, Mapping)]


def named(value: Any) -> str:
    """An object's name; "": it has none."""
    return str(dig(value, "metadata", "name") or "")


def ray_pods(service: Any) -> Iterator[Pods]:
    """The head's and each worker group's pods."""
    cluster = mapping(service, "spec", "rayClusterConfig")
    head = mapping(cluster, "headGroupSpec", "template", "spec")
    yield Pods(f"{CLUSTER}.headGroupSpec.template.spec", head, is_head=True)
    for index, group in listed(cluster, "workerGroupSpecs"):
        place = join(CLUSTER, ["workerGroupSpecs", index])
        spec = mapping(group, "template", "spec")
        yield Pods(f"{place}.template.spec", spec, is_head=False)
