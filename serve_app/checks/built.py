"""Build a model's deployment without a cluster, and check its overrides."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import ray
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.core.server.builder import build_llm_deployment
from ray.serve import Deployment

from controller.errors import ConfigError
from controller.validation import join
from replicas.door.settings import Security
from serve_app.checks.quick import live_problems
from serve_app.checks.values import REPLICA, replica_problems
from serve_app.checks.vllm_config import silent
from serve_app.config import AUTOSCALING_POLICY, names_function

MOST_DEVICES = 4096  # devices of an engine: Ray makes a bundle for each, and a typo can be huge


@dataclass(frozen=True)
class Model:
    """An entry of ``llm_configs`` as it was written, and the deployment it becomes."""

    entry: dict[str, Any]
    deployment: Deployment

    @property
    def drain_s(self) -> float:
        """How long a replica that ends lets its streams go on, seconds."""
        return float(self.deployment._deployment_config.graceful_shutdown_timeout_s)


@dataclass(frozen=True)
class Built:
    """An application's models.

    Args:
        entries: the readable ones, by their places in the arguments.
        models: by the names of their deployments.
    """

    entries: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    security: Security = field(default_factory=Security)


Placed = tuple[str, Built]  # with the application's place


@contextmanager
def no_cluster() -> Iterator[None]:
    """Ray Serve LLM asks for the driver's runtime environment, which would start Ray."""
    here = SimpleNamespace(runtime_env={})
    # Ray writes down all options.
    with patch.object(ray, "get_runtime_context", lambda: here), silent(logging.INFO):
        yield


def build_model(
    entry: dict[str, Any], ours: dict[str, Any], name_prefix: str | None = None
) -> Model:
    """The deployment of an entry, as the app builder makes it.

    Args:
        ours: ``ray_llm_config(entry)``.
        name_prefix: of its deployment; None: its server class.

    Raises:
        Exception: any error of Ray Serve LLM or Ray Serve.
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
        return Model(entry, made._bound_deployment)


def override_problems(
    overrides: Iterable[tuple[int, Mapping[str, Any]]], built: Built, where: str
) -> list[str]:
    """Problems of an application's ``deployments``: blocks that replicas would refuse, and
    overrides by which a model would scale without a policy that the config names.

    Args:
        overrides: each with its index.
        where: the application's place.
    """
    found = []
    for index, one in overrides:
        model = built.models.get(str(one.get("name")))
        if model is None:
            continue
        place = join(where, ["deployments", index])
        found += live_problems(one.get("user_config"), model.entry, built.security, place, one)
        theirs = {key: getattr(model.deployment._replica_config, key) for key in REPLICA}
        found += replica_problems({**theirs, **{k: one[k] for k in REPLICA if k in one}}, place)
        block = one.get("autoscaling_config")
        if isinstance(block, dict) and not names_function(block.get("policy")):
            found.append(
                f"{place}.autoscaling_config: replaces the entry's whole block and names no"
                " policy, so Ray Serve uses its own policy with a target of 2 ongoing"
                " requests. Put these keys into the entry's deployment_config, or add policy:"
                f" {{policy_function: '{AUTOSCALING_POLICY}', policy_kwargs: {{...}}}} with"
                " every key of scaling"
            )
    return found
