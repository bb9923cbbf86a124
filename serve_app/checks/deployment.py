"""Check the options of one Ray Serve deployment, nested blocks included."""

from typing import Any

from pydantic import BaseModel
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema

from controller.validation import join
from serve_app.checks.keys import choose, fields_of
from serve_app.checks.nested import nested_problems, replica_problems
from serve_app.checks.values import value_problems


def deployment_problems(
    options: dict[str, Any], where: str, *, local_paths: bool = True
) -> list[str]:
    """What Ray Serve has against ``options``, now or once it deploys them.

    Its schema takes any mapping for some nested blocks and stops at the first wrong option.

    Args:
        local_paths: as ``nested_problems`` takes it.
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
    inner = nested_problems(options, where, local_paths=local_paths)
    places = tuple(f"{line.split(': ', 1)[0]}" for line in found)
    found += [line for line in inner if not line.startswith(places)]
    return found or replica_problems(options, where)
