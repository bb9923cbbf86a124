"""Check the blocks that Ray's schemas take as plain mappings, by the types Ray reads them with.

Serve looks into them only while a replica is being placed, and then tries again without end.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ray._common.ray_option_utils import validate_actor_options
from ray._private.runtime_env.validation import OPTION_TO_NO_PATH_VALIDATION_FN
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig
from ray.serve._private.config import ReplicaConfig

from controller.validation import join, shown
from serve_app.checks.values import call_problems, line, value_problems

# Below these stands what Ray does not read.
FREE = ("args", "user_config", "engine_kwargs")
# Ray opens a file of this name on the machine that builds the application.
NAME_FILES = ("pip", "uv", "conda")
READERS: dict[str, Callable[[Any], Any]] = {
    **OPTION_TO_NO_PATH_VALIDATION_FN,
    "config": RuntimeEnvConfig.parse_and_validate_runtime_env_config,
}
# Options that Ray's class takes as they come.
UNREAD = {
    name: parameter.annotation
    for name, parameter in inspect.signature(RuntimeEnv).parameters.items()
    if name in ("py_executable", "image_uri", "worker_process_setup_hook", "nsight", "rocprof_sys")
}
REPLICA = (
    "ray_actor_options",
    "placement_group_bundles",
    "placement_group_strategy",
    "placement_group_bundle_label_selector",
    "placement_group_fallback_strategy",
    "max_replicas_per_node",
)


def nested_problems(data: Any, where: str, *, local_paths: bool) -> list[str]:
    """What is wrong with runtime environments and actor options, however deep they stand.

    Args:
        local_paths: files that a runtime environment names are on this machine.
    """
    found = []
    for key, value in _items(data):
        place = join(where, [key])
        if key == "runtime_env" and isinstance(value, dict):
            found += _runtime_env(value, place, local_paths)
        if key == "ray_actor_options" and isinstance(value, dict):
            found += _actor_options(value, place)
        if key not in FREE:
            found += nested_problems(value, place, local_paths=local_paths)
    return found


def replica_problems(options: Mapping[str, Any], where: str) -> list[str]:
    """What Serve has against the resources of a deployment's replicas, taken together."""
    given = {key: options[key] for key in REPLICA if options.get(key) is not None}
    actor = dict(given.pop("ray_actor_options", {}))  # in which Ray writes its defaults
    return call_problems(
        lambda: ReplicaConfig.create("replica", ray_actor_options=actor, **given), options, where
    )


def _items(data: Any) -> list[tuple[Any, Any]]:
    if isinstance(data, dict):
        return list(data.items())
    return list(enumerate(data)) if isinstance(data, list) else []


def _runtime_env(block: dict[str, Any], where: str, local_paths: bool) -> list[str]:
    given = {key: value for key, value in block.items() if value is not None}
    if not local_paths:
        given = {k: v for k, v in given.items() if k not in NAME_FILES or not isinstance(v, str)}
    found = []
    for key, value in given.items():
        place = join(where, [key])
        if key == "env_vars" and isinstance(value, dict):
            found += [
                line(join(place, [str(name)]), text, "must be a string (quote it)")
                for name, text in value.items()
                if not isinstance(text, str)
            ]
        elif key == "env_vars":
            found.append(f"{place}: {shown(value)} is not allowed: it must be a mapping")
        elif key in UNREAD:
            found += value_problems(UNREAD[key], value, place)
        else:
            found += _read(key, value, place)
    return found or call_problems(lambda: RuntimeEnv(**given), given, where)


def _read(key: str, value: Any, where: str) -> list[str]:
    read = READERS.get(key, lambda one: RuntimeEnv(**{key: one}))
    return call_problems(lambda: read(value), value, where)


def _actor_options(options: dict[str, Any], where: str) -> list[str]:
    found = []
    for key, value in options.items():
        place = join(where, [key])
        if key == "runtime_env":
            continue
        if key == "resources" and isinstance(value, dict):
            wrong = [
                line(join(place, [str(name)]), amount, "must be a number")
                for name, amount in value.items()
                if isinstance(amount, bool) or not isinstance(amount, int | float)
            ]
            found += wrong
            if wrong:
                continue
        one = partial(validate_actor_options, {key: value}, in_options=True)
        found += call_problems(one, value, place)
    return found
