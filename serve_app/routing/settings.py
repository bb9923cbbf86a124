"""The ``router`` block of an entry of ``llm_configs``, and what Ray Serve gets from it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from controller.classes import ServiceClasses
from controller.config import Block
from controller.validation import parse

HEADROOM = "serve_app.routing.router:HeadroomRouter"
CLASSES = {
    "headroom": HEADROOM,
    "round_robin": "ray.serve.experimental.round_robin_router:RoundRobinRouter",
    "power_of_two": "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter",
}
STATS_PERIOD_S = 0.5  # how often Ray Serve asks each replica for its load


class RouterConfig(Block):
    """Which replica gets a request. All keys but ``policy`` apply to ``headroom`` only."""

    removed: ClassVar[Mapping[str, str]] = {
        "choices": "four replicas are compared for a request",
        "stats_period_s": "replicas are asked for their room twice a second",
        "stale_after_s": "figures older than 5 s are not trusted",
        "prefix_chars": "beginnings of prompts are compared in pieces of 1,024 characters",
    }

    policy: Literal["headroom", "haproxy", "round_robin", "power_of_two"] = Field(
        "headroom",
        description="headroom: the replica with the most free capacity; haproxy: HAProxy takes"
        " the replica with the fewest open requests and asks no router (the default"
        " for one fixed replica); round_robin, power_of_two: Ray Serve's own (with"
        " direct streaming power_of_two chooses at random)",
    )
    prefix_affinity: bool = Field(
        False,
        description="true: prefer replicas whose prefix cache holds the prompt (docs/agents.md)",
    )
    gather_classes: bool = Field(
        False,
        description="class affinity: if `classes` differ in itl_ms, the strictest class goes"
        " to the first replicas and all other classes to the last ones, unless that"
        " makes a request wait longer by an eighth of its ttft_ms; only for"
        " requests that name their class in the body",
    )


def parse_router(data: Any, where: str = "router") -> RouterConfig:
    """The ``router`` block from plain data (None: all defaults).

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    return parse(RouterConfig, {} if data is None else data, where)


def by_haproxy(router: RouterConfig | None, deployment: Mapping[str, Any]) -> bool:
    """Whether Ray Serve gets no request router, so that HAProxy alone chooses the replica.

    Args:
        router: None: the entry has no ``router`` block. Then a deployment of one replica for good
            has none either, as there is nothing to choose.
        deployment: ``deployment_config``.
    """
    if router is not None:
        return router.policy == "haproxy"
    return not deployment.get("autoscaling_config") and deployment.get("num_replicas") == 1


def request_router_config(
    config: RouterConfig, classes: ServiceClasses | None = None
) -> dict[str, Any]:
    """The block as Ray Serve's ``request_router_config``."""
    kwargs = config.model_dump(exclude={"policy", "gather_classes"})
    if config.gather_classes and classes is not None:
        kwargs["gathered"] = promised(classes)
    return {
        "request_router_class": CLASSES[config.policy],
        "request_router_kwargs": kwargs if config.policy == "headroom" else {},
        "request_routing_stats_period_s": STATS_PERIOD_S,
    }


def promised(classes: ServiceClasses) -> dict[str, tuple[float | None, float]]:
    """The arguments of ``serve_app.routing.gather``, as plain data: Ray Serve pickles them."""
    return {
        named: (one.itl_ms, one.deadline_s)
        for name, one in classes.by_name.items()
        for named in (name, *one.aliases)
    }
