"""``NAME[:key=value,...]``: a policy, its constants, and Ray Serve's settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from ray.serve.config import AutoscalingConfig

from controller.config import Block
from controller.errors import ConfigError
from controller.validation import parse, shown, unknown_key
from serve_app.config import ray_llm_config
from serve_app.scaling.reading import PUBLISHED
from simulator.fleet.days import MOST_REPLICAS
from simulator.fleet.simulate import Scenario
from simulator.virtual.plan import settings_of
from simulator.virtual.rivals import of_benches

OURS = "brimful"
RAY = "ray"
# Settings of Ray Serve's autoscaling_config that every policy may have.
RAY_KEYS = (
    "min_replicas",
    "max_replicas",
    "upscale_delay_s",
    "downscale_delay_s",
    "upscaling_factor",
    "downscaling_factor",
    "look_back_period_s",
    "target_ongoing_requests",
)
# All but Ray's are in the benches.
RIVALS = (RAY, "dynamo-throughput", "dynamo-load", "dynamo-both")
NAMES = (OURS, *RIVALS)
_REGISTRY = "benchmarks.fleet.rivals.registry:RIVALS"


class _Ray(Block):
    """Ray Serve's default policy, without constants other than its ``autoscaling_config``."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A policy that is not Brimful's.

    Args:
        path: ``module:name``, for Ray Serve.
        constants: its settings.
        reads: names of the metrics that it reads.
        known: true values of the engine that it has to know beforehand.
    """

    path: str
    constants: type[BaseModel]
    reads: tuple[str, ...]
    known: Callable[[Scenario], Mapping[str, float]] = lambda scenario: {}


@dataclass(frozen=True, slots=True)
class Policy:
    """One line of a comparison.

    Args:
        autoscaling: Ray Serve's ``autoscaling_config``, with the policy.
        reads: names of the metrics that it reads; None: all.
    """

    autoscaling: Mapping[str, Any]
    reads: tuple[str, ...] | None


def parse_policy(spec: str, scenario: Scenario, bounds: Mapping[str, int]) -> Policy:
    """A policy from the command line.

    Raises:
        ConfigError: naming the policy, key or value that is wrong, and what is allowed.
    """
    name = spec.partition(":")[0]
    if name not in NAMES:
        raise ConfigError([unknown_key("policy", name, list(NAMES))])
    given = _settings(spec)
    ray: dict[str, Any] = {
        "metrics_interval_s": scenario.tick_s,
        "look_back_period_s": 2 * scenario.tick_s,
        **bounds,
        **{key: value for key, value in given.items() if key in RAY_KEYS},
    }
    own = {key: value for key, value in given.items() if key not in RAY_KEYS}
    check_bounds(ray, spec)
    parse(AutoscalingConfig, ray, f"policy {spec}")
    if name == OURS:
        return Policy(_ours(own, ray, scenario, spec), PUBLISHED)
    rival = rival_of(name)
    allowed = rival.constants.model_fields
    for key in own:
        if key not in allowed:
            raise ConfigError([unknown_key(f"policy {spec}", key, [*RAY_KEYS, *allowed])])
    parse(rival.constants, own, f"policy {spec}")
    kwargs = {**rival.known(scenario), **own}
    policy = {"policy_function": rival.path, "policy_kwargs": kwargs}
    return Policy({**ray, "policy": policy}, rival.reads)


def rival_of(name: str) -> Rival:
    """One of ``RIVALS``.

    Raises:
        ConfigError: the rivals are not installed.
    """
    if name == RAY:
        return Rival("ray.serve.autoscaling_policy:default_autoscaling_policy", _Ray, ())
    rival: Rival = of_benches(_REGISTRY, name)[name]
    return rival


def _ours(
    own: Mapping[str, Any], ray: Mapping[str, Any], scenario: Scenario, spec: str
) -> Mapping[str, Any]:
    """The ``autoscaling_config`` that ``serve_app`` builds from a ``scaling`` block."""
    entry = {
        "model_loading_config": {"model_id": "fleet"},
        "engine_kwargs": {"max_num_seqs": scenario.profile.max_num_seqs},
        "deployment_config": {
            "autoscaling_config": dict(ray),
            "max_ongoing_requests": scenario.max_ongoing,
        },
        "batching": {"sla": scenario.sla.model_dump()},
        "scaling": dict(own),
    }
    built = ray_llm_config(entry, f"policy {spec}")
    autoscaling: Mapping[str, Any] = built["deployment_config"]["autoscaling_config"]
    return autoscaling


def check_bounds(ray: Mapping[str, Any], where: str) -> None:
    """Refuse bounds that contradict each other, and fleets larger than ``MOST_REPLICAS``.

    Raises:
        ConfigError: naming them.
    """
    least, most = ray.get("min_replicas", 1), ray.get("max_replicas", 1)
    if not (isinstance(least, int) and isinstance(most, int) and least >= 0):
        raise ConfigError([f"{where}: min_replicas and max_replicas must be whole numbers from 0"])
    if most > MOST_REPLICAS:
        problem = f"{where}: max_replicas={most} is not allowed: at most {MOST_REPLICAS}"
        raise ConfigError([problem])
    if least > most:
        raise ConfigError(
            [f"{where}: min_replicas={least} is not allowed: at most max_replicas={most}"]
        )


def _settings(spec: str) -> dict[str, Any]:
    found = dict(settings_of(spec))
    for key, value in found.items():
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric and not (key == "predictor" and value in ("constant", "trend")):
            raise ConfigError([f"policy {spec}: {key}={shown(value)} is not allowed: a number"])
    return found
