"""Routes that a model answers on and that the door keeps closed until somebody opens them."""

import re
from collections.abc import Mapping
from typing import Any

from replicas.door.paths import Paths
from replicas.door.settings import Security

# What a model is called: what it is, its routes, and what opens them.
KINDS = (
    (
        re.compile(r"whisper|transcri|(^|[^a-z])asr([^a-z]|$)|parakeet|canary", re.I),
        "a speech model",
        ("/v1/audio/transcriptions", "/v1/audio/translations"),
        "POST /v1/audio/*",
    ),
    (
        re.compile(r"rerank|cross-encoder", re.I),
        "a reranking model",
        ("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score"),
        "POST /v1/rerank",
    ),
    (
        re.compile(r"reward|(^|[-_/])prm([-_]|$)", re.I),
        "a reward model",
        ("/classify", "/pooling", "/score", "/v1/score"),
        "POST /classify",
    ),
    (
        re.compile(r"classif", re.I),
        "a classifier",
        ("/classify", "/score", "/v1/score", "/rerank", "/v1/rerank"),
        "POST /classify",
    ),
)


def closed_routes(entry: Mapping[str, Any], security: Security, where: str) -> list[str]:
    """A note where the model's routes are all closed; by its name, as it is not loaded."""
    paths = Paths(security.extra_paths)
    loading = entry.get("model_loading_config")
    loading = loading if isinstance(loading, dict) else {}
    source = str(loading.get("model_source") or loading.get("model_id"))
    # Of a path the last part; of the whole the folder of somebody's models would count.
    name = source.rstrip("/").rpartition("/")[2]
    for said, what, routes, opens in KINDS:
        if said.search(name):
            if any(paths.methods(route) for route in routes):
                return []
            return [
                f"{where}: {what} answers on {' and '.join(routes[:2])}, which are closed (404)"
                f" until security: {{extra_paths: ['{opens}']}} stands beside llm_configs"
            ]
    return []
