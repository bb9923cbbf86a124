"""The names of an application's deployments, as Ray Serve LLM makes them."""

from collections.abc import Iterable
from typing import Any

from serve_app.checks.findings import BUILDER, builder_of
from serve_app.live_roles import with_roles
from serve_app.pd import MODELS, NAME_PREFIX, ROLES, entries_of

Data = dict[str, Any]
THEIRS = "ray.serve.llm:build_openai_app"


def model_name(entry: Data, builder: str = BUILDER, key: str = MODELS) -> str:
    """The name of an entry's deployment; ``key``: where the entry stands in ``args``."""
    own = (entry.get("deployment_config") or {}).get("name")
    model = str((entry.get("model_loading_config") or {}).get("model_id"))
    if builder == BUILDER:
        server = "MixedServer" if with_roles(entry) else "BrimfulServer"
        server = "EmulatedServer" if entry.get("emulate") is not None else server
    else:
        server = str(entry.get("server_cls") or "LLMServer").replace(":", ".").rpartition(".")[2]
    prefix = NAME_PREFIX[ROLES[key]] if key in ROLES else f"{server}:"
    return f"{prefix}{own or model.replace('/', '--').replace('.', '_')}"


def is_model(deployment: str) -> bool:
    """Whether a deployment is a model's, not an ingress or a router."""
    return ":" in deployment


def gone(running: Data, wanted: Data, deployments: Iterable[str]) -> list[str]:
    """The running models' deployments that ``wanted`` no longer has.

    None if the same unknown builder makes both.
    """
    builder = builder_of(wanted)
    entries = entries_of(wanted.get("args"))
    known = builder in (BUILDER, THEIRS) and all(isinstance(one, dict) for _, one in entries)
    if not known and builder == builder_of(running):
        return []
    kept = {model_name(entry, builder, key) for key, entry in entries} if known else set()
    return [name for name in deployments if is_model(name) and name not in kept]
