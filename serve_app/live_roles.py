"""The key ``batching.roles`` of an entry: engines that change roles, and their requirements.

Needs neither Ray nor vLLM.
"""

from collections.abc import Mapping
from typing import Any

from controller.config import BatchingConfig
from controller.validation import shown
from replicas.engine.settings import replica_bounds, role_problems
from serve_app.routing.settings import RouterConfig, by_haproxy

SERVER = "serve_app.mixed_server:MixedServer"
KV = "kv_transfer_config"
LEAST = 2  # replicas: one that computes prompts, and one that decodes
CONNECTOR, KV_ROLE = "NixlConnector", "kv_both"


def with_roles(entry: Mapping[str, Any]) -> bool:
    """Whether its engines can take both roles, by their own server class."""
    batching = entry.get("batching")
    return isinstance(batching, Mapping) and batching.get("roles") is not None


def problems(
    entry: Mapping[str, Any],
    deployment: Mapping[str, Any],
    batching: BatchingConfig,
    router: RouterConfig | None,
    where: str,
) -> list[str]:
    """Problems that keep the engines of an entry with ``batching.roles`` from either role.

    Args:
        deployment: its ``deployment_config``.
        router: None: the entry has no ``router`` block.
    """
    place = f"{where}.deployment_config"
    key, most = replica_bounds(deployment)[1]
    if most < LEAST:
        found = role_problems(batching, f"{where}.batching")
        found.append(
            f"{place}.{key}: {most} is not allowed with batching.roles: at least {LEAST}, one of"
            " which decodes"
        )
    else:
        found = role_problems(batching, f"{where}.batching", deployment, place)
    engine = entry.get("engine_kwargs") or {}
    kv = engine.get(KV)
    kv = kv if isinstance(kv, Mapping) else {}
    for key, needed in (("kv_connector", CONNECTOR), ("kv_role", KV_ROLE)):
        if kv.get(key) != needed:
            found.append(
                f"{where}.engine_kwargs.{KV}.{key}: {shown(kv.get(key))} is not allowed with"
                f" batching.roles: {needed}, by which each engine gives KV and takes it"
            )
    if entry.get("emulate") is not None:
        found.append(
            f"{where}.emulate: is not allowed with batching.roles: an emulated accelerator has no"
            " KV to hand over"
        )
    chosen = router.policy if router is not None else "headroom"
    if by_haproxy(router, deployment) or chosen != "headroom":
        found.append(
            f"{where}.router.policy: {shown(chosen)} is not allowed with batching.roles: headroom,"
            " which sends prefill engines no requests of clients"
        )
    if deployment.get("request_router_config") is not None:
        found.append(
            f"{where}.deployment_config.request_router_config: is not allowed with batching.roles:"
            " Brimful's own router knows roles; leave it out"
        )
    return found
