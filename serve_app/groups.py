"""Which replicas share their statistics, and the name of an entry's model."""

import hashlib
import json
from typing import Any

from controller.config import BatchingConfig
from replicas.engine.executor import Executor


def model_id(entry: dict[str, Any]) -> str:
    """The name that clients ask for."""
    loading = entry.get("model_loading_config") or {}
    return str(loading.get("model_id", "model") if isinstance(loading, dict) else loading.model_id)


def _told(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except TypeError:  # keys of several types have no order
        return json.dumps(_with_text_keys(value), sort_keys=True, default=str)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _with_text_keys(inner) for key, inner in value.items()}
    return [_with_text_keys(one) for one in value] if isinstance(value, list | tuple) else value


def group_name(entry: dict[str, Any], batching: BatchingConfig, executor: Executor) -> str:
    """Replicas share statistics if model, accelerator, engine and batching are equal.

    The model's source counts too, because two versions may be served under one name.
    """
    same = (
        entry.get("model_loading_config") or {},
        entry.get("engine_kwargs"),
        entry.get("accelerator_type"),
        entry.get("emulate"),
        executor,
        batching.model_dump(),
    )
    digest = hashlib.sha256(_told(same).encode()).hexdigest()
    return f"{model_id(entry)}-{digest[:8]}"
