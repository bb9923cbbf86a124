"""Check the options of a Ray Serve deployment, and runtime environments wherever they stand.

Ray's schemas take some blocks as plain mappings. Serve looks into them only while a replica is
being placed, and then tries again without end.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Strict
from ray.runtime_env import RuntimeEnv
from ray.serve._private.config import ReplicaConfig
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema

from controller.validation import join
from serve_app.checks.keys import choose, fields_of
from serve_app.checks.values import call_problems, value_problems
from serve_app.runtime_env import text_problems

# Below these stands what Ray does not read.
FREE = ("args", "user_config", "engine_kwargs")
# Ray opens a file of this name on the machine that builds the application.
NAME_FILES = ("pip", "uv", "conda")
REPLICA = (
    "ray_actor_options",
    "placement_group_bundles",
    "placement_group_strategy",
    "placement_group_bundle_label_selector",
    "placement_group_fallback_strategy",
    "max_replicas_per_node",
)


def deployment_problems(
    options: dict[str, Any], where: str, *, local_paths: bool = True
) -> list[str]:
    """What Ray Serve has against ``options``, now or once it deploys them.

    Its schema takes any mapping for some nested blocks and stops at the first wrong option.

    Args:
        local_paths: as ``env_problems`` takes it.
    """
    nested = []
    for key, annotation in (fields_of(DeploymentSchema) or {}).items():
        block = options.get(key)
        kind = choose(annotation, block)
        if not (isinstance(block, dict) and isinstance(kind, type) and issubclass(kind, BaseModel)):
            continue
        if key == "autoscaling_config" and options.get("num_replicas") == "auto":
            block = {**AutoscalingConfig.default().model_dump(exclude_unset=True), **block}
        nested += value_problems(kind, block, join(where, [key]))
    reported = {line.split(": ", 1)[1] for line in nested}
    whole = value_problems(DeploymentSchema, options, where)
    found = [line for line in whole if line.split(": ", 1)[1] not in reported] + nested
    inner = env_problems(options, where, local_paths=local_paths)
    places = tuple(f"{line.split(': ', 1)[0]}" for line in found)
    found += [line for line in inner if not line.startswith(places)]
    return found or replica_problems(options, where)


def replica_problems(options: Mapping[str, Any], where: str) -> list[str]:
    """What Serve has against the resources of a deployment's replicas, taken together."""
    given = {key: options[key] for key in REPLICA if options.get(key) is not None}
    actor = dict(given.pop("ray_actor_options", {}))  # in which Ray writes its defaults
    amounts, place = actor.get("resources") or {}, f"{where}.ray_actor_options.resources"
    return value_problems(dict[str, Annotated[float, Strict()]], amounts, place) or call_problems(
        lambda: ReplicaConfig.create("replica", ray_actor_options=actor, **given), options, where
    )


def env_problems(data: Any, where: str, *, local_paths: bool) -> list[str]:
    """What Ray has against runtime environments, however deep they stand.

    Args:
        local_paths: files that they name are on this machine.
    """
    items = data.items() if isinstance(data, dict) else ()
    found = []
    for key, value in enumerate(data) if isinstance(data, list) else items:
        place = join(where, [key])
        if key == "runtime_env" and isinstance(value, dict):
            found += _runtime_env(value, place, local_paths)
        if key not in FREE:
            found += env_problems(value, place, local_paths=local_paths)
    return found


def _runtime_env(block: dict[str, Any], where: str, local_paths: bool) -> list[str]:
    given = {key: value for key, value in block.items() if value is not None}
    if not local_paths:
        given = {k: v for k, v in given.items() if k not in NAME_FILES or not isinstance(v, str)}
    variables = text_problems(given.get("env_vars"), f"{where}.env_vars")
    return variables or call_problems(lambda: RuntimeEnv(**given), given, where)
