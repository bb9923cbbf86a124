"""The shipped RayService for tests of manifests, and changes to it."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.serve_configs import Path as KeyPath
from tests.serve_configs import put

ROOT = Path(__file__).parents[1]
BASE = ROOT / "k8s" / "base"
CLUSTER = ("spec", "rayClusterConfig")
HEAD = (*CLUSTER, "headGroupSpec", "template", "spec", "containers", 0)
WORKERS = (*CLUSTER, "workerGroupSpecs", 0)
WORKER = (*WORKERS, "template", "spec", "containers", 0)
HEAD_PLACE = "spec.rayClusterConfig.headGroupSpec.template.spec.containers[0]"
WORKERS_PLACE = "spec.rayClusterConfig.workerGroupSpecs[0]"
WORKER_PLACE = f"{WORKERS_PLACE}.template.spec.containers[0]"
SERVE_PLACE = "spec.serveConfigV2"


class Plain(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes every part out instead of repeating it by an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def with_serve(service: dict[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """``service`` with a change inside its embedded Serve configuration."""
    config = put(yaml.safe_load(service["spec"]["serveConfigV2"]), path, value)
    return put(service, ("spec", "serveConfigV2"), yaml.safe_dump(config))


def without(service: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    service = copy.deepcopy(service)
    inner: Any = service
    for part in path[:-1]:
        inner = inner[part]
    del inner[path[-1]]
    return service


def set_env(service: dict[str, Any], container: KeyPath, **values: Any) -> dict[str, Any]:
    """``service`` with environment variables of one container set; None takes one away."""
    inner: Any = service
    for part in container:
        inner = inner[part]
    kept = [item for item in inner["env"] if item["name"] not in values]
    new = [{"name": name, "value": value} for name, value in values.items() if value is not None]
    return put(service, (*container, "env"), kept + new)


@cache
def _shipped() -> dict[str, Any]:
    # Written out: the anchors of the file are shared objects otherwise.
    return yaml.safe_load(yaml.dump(load(BASE / "rayservice.yaml"), Dumper=Plain))


def shipped() -> dict[str, Any]:
    """The RayService of k8s/base."""
    return copy.deepcopy(_shipped())
