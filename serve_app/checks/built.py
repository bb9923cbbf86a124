"""Build an application's deployments without a cluster, and check what is laid over them."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ray
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.core.server.builder import build_llm_deployment
from ray.serve import Deployment

from controller.errors import ConfigError
from controller.validation import join, nearest, shown
from replicas.door.settings import Security
from replicas.engine.executor import accelerator_kind
from replicas.engine.settings import live_security
from serve_app.build import ingress_class, needs_llm_router
from serve_app.checks.deployment import REPLICA, replica_problems
from serve_app.checks.live import live_problems
from serve_app.checks.values import line

ROUTER = "LLMRouter"
MOST_DEVICES = 4096  # of an engine: Ray makes a bundle for each, and a slip of the keyboard is many


@dataclass(frozen=True)
class Model:
    """An entry of ``llm_configs``, and what it comes to.

    Args:
        entry: as it was written, less the keys that nobody knows.
        config: as Ray Serve LLM takes it.
    """

    entry: dict[str, Any]
    config: LLMConfig
    deployment: Deployment


@dataclass(frozen=True)
class Built:
    """An application's deployments.

    Args:
        entries: those that can be read at all.
        models: by the names of their deployments.
        others: names of the deployments that are no models: an ingress, a router.
        whole: no entry is missing in ``models``.
        places: of each entry, in the arguments.
    """

    entries: list[dict[str, Any]] = field(default_factory=list)
    models: Mapping[str, Model] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    security: Security = field(default_factory=Security)
    whole: bool = False
    places: tuple[str, ...] = ()


@contextmanager
def no_cluster() -> Iterator[None]:
    """Ray Serve LLM asks for the driver's runtime environment, by which Ray would start."""
    theirs, lowest = ray.get_runtime_context, logging.root.manager.disable
    ray.get_runtime_context = lambda: SimpleNamespace(runtime_env={})
    logging.disable(logging.INFO)  # Ray writes down all options
    try:
        yield
    finally:
        ray.get_runtime_context = theirs
        logging.disable(lowest)


def build_model(
    entry: dict[str, Any], ours: dict[str, Any], name_prefix: str | None = None
) -> Model:
    """The deployment of an entry, as the app builder makes it.

    Args:
        ours: ``ray_llm_config(entry)``.
        name_prefix: of its deployment; None: its server class.

    Raises:
        Exception: whatever Ray Serve LLM and Ray Serve have against it.
    """
    config = LLMConfig.model_validate(ours)
    engine = config.get_engine_config()
    if not isinstance(engine.num_devices, int) or engine.num_devices > MOST_DEVICES:
        raise ConfigError(
            [
                "engine_kwargs: tensor_parallel_size times pipeline_parallel_size is"
                f" {engine.num_devices}, which is not allowed: at most {MOST_DEVICES}"
            ]
        )
    engine.get_initialization_kwargs()
    with no_cluster():
        # A copy: Ray writes into the nested blocks of what it is given.
        made = build_llm_deployment(config.model_copy(deep=True), name_prefix=name_prefix)
        deployment = made._bound_deployment
    return Model(entry, config, deployment)


def other_deployments(args: Mapping[str, Any], models: list[Model], *, direct: bool) -> list[str]:
    """The deployments of an application of ours that are no models.

    Args:
        direct: whether its replicas answer HTTP themselves.
    """
    if direct:
        return [ROUTER] if any(needs_llm_router(model.config) for model in models) else []
    named = args.get("ingress_deployment_config")
    if isinstance(named, dict) and isinstance(named.get("name"), str):
        return [named["name"]]
    return [ingress_class(args.get("ingress_cls_config")).__name__]


def card_problems(model: Model, bundles: Any, where: str) -> list[str]:
    """Bundles that vLLM refuses for the workers of an engine, as it looks for one card in each.

    Args:
        bundles: the placement group of a replica; its first holds the replica's actor, too.
        where: the place to name.
    """
    if accelerator_kind(model.entry) != "gpu" or not isinstance(bundles, list):
        return []
    cards = [bundle.get("GPU", 0) for bundle in bundles if isinstance(bundle, dict)]
    if any(count > 1 for count in cards):
        return [
            f"{where}: a bundle of a replica's placement group comes to {max(cards):g} GPUs, and"
            " vLLM takes one of each bundle; the first bundle is also given what ray_actor_options"
            " asks for: leave num_gpus out there, and list a bundle for each GPU"
        ]
    needed = model.config.get_engine_config().num_devices
    if (there := sum(count > 0 for count in cards)) < needed:
        return [
            f"{where}: {there} bundles with a GPU, and tensor_parallel_size times"
            f" pipeline_parallel_size is {needed}: vLLM needs one for each worker"
        ]
    return []


def override_problems(overrides: list[Any], built: Built, where: str) -> list[str]:
    """What Serve, or the replicas, would refuse of an application's ``deployments``.

    Args:
        where: their place.
    """
    found = []
    known = (*built.models, *built.others)
    for index, override in enumerate(overrides):
        place = join(where, [index])
        name = override.get("name") if isinstance(override, dict) else None
        if not isinstance(name, str):
            continue
        if name in built.models:
            found += _of_model(override, built.models[name], built.security, place)
        elif name not in known and built.whole:
            message = f"no deployment of this application; {nearest(name, known)}"
            found.append(line(f"{place}.name", name, message))
        elif name in built.others and override.get("user_config") is not None:
            found += _of_ingress(override["user_config"], name, built.security, place)
    return found


def _of_model(override: dict[str, Any], model: Model, security: Security, where: str) -> list[str]:
    found = live_problems(override.get("user_config"), model.entry, security, where, override)
    given = {key: override[key] for key in REPLICA if key in override}
    if not given:
        return found
    theirs = model.deployment._replica_config
    merged = {**{key: getattr(theirs, key) for key in REPLICA}, **given}
    problems = replica_problems(merged, where)
    return found + (problems or card_problems(model, merged["placement_group_bundles"], where))


def _of_ingress(user_config: Any, name: str, security: Security, where: str) -> list[str]:
    if name == ROUTER:
        return [f"{where}.user_config: {name} has none; name the model's deployment"]
    blocks = [key for key in user_config if key != "security"] if _is_map(user_config) else []
    if blocks or not _is_map(user_config):
        got = blocks[0] if blocks else shown(user_config)
        return [f"{where}.user_config: {got!r} is not allowed: an ingress takes security alone"]
    try:
        live_security(user_config, security)
    except ConfigError as error:
        return [f"{where}.{problem}" for problem in error.problems]
    return []


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)
