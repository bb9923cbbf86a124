"""Serve configurations for the tests of ``brimful check``, and how to put a fault into one."""

import copy
from typing import Any

from controller.validation import join
from serve_app.checks.findings import Target
from serve_app.environment import DIRECT_STREAMING, HA_PROXY

HERE = Target(env={}, local_paths=True)
DIRECT = Target(env={HA_PROXY: "1", DIRECT_STREAMING: "1"}, local_paths=True)
APP = ("applications", 0)
ENTRY = (*APP, "args", "llm_configs", 0)

# A config.json, as small as a model can be: 3 heads, 2,048 tokens.
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "vocab_size": 64,
    "max_position_embeddings": 2048,
    "dtype": "bfloat16",
}
ARGS = "applications[0].args"
PLACE = f"{ARGS}.llm_configs[0]"
Path = tuple[str | int, ...]


def at(path: str) -> Path:
    """Keys of a dotted path in the entry; of ``/path`` in the application, ``//path`` the file."""
    inner = path.lstrip("/")
    start = (ENTRY, APP, ())[len(path) - len(inner)]
    return (*start, *(int(key) if key.isdigit() else key for key in inner.split(".") if key))


def place(path: str) -> str:
    """The same path as a problem names it."""
    return join("", at(path))


def having(path: str, value: Any, data: Any = None) -> Any:
    """A copy of ``data``, by default the sound configuration, with ``value`` at the path."""
    return put(config() if data is None else data, at(path), value)


def entry() -> dict[str, Any]:
    """An entry of ``llm_configs`` without a fault."""
    return {
        "model_loading_config": {"model_id": "m", "model_source": "org/m"},
        "engine_kwargs": {"max_num_seqs": 64, "max_num_batched_tokens": 512},
        "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 3}},
        "batching": {"sla": {"itl_ms": 50}, "max_running": {"min": 2, "max": 64}},
        "scaling": {"drain_s": 20},
    }


def config(*entries: dict[str, Any]) -> dict[str, Any]:
    """A configuration with one application of ours, by default with one entry."""
    app = {
        "name": "llm",
        "route_prefix": "/",
        "import_path": "serve_app:build_app",
        "args": {"llm_configs": list(entries) or [entry()]},
    }
    return {"applications": [app]}


def put(data: Any, path: Path, value: Any) -> Any:
    """A copy of ``data`` with ``value`` at ``path``; mappings on the way are made."""
    data = copy.deepcopy(data)
    inner = data
    for part in path[:-1]:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner[part]
    inner[path[-1]] = value
    return data


def unknown(place: str, key: str, nearest: str) -> str:
    """The line for an unknown key."""
    return f"{place}: unknown key {key!r}; did you mean {nearest!r}?"


def refused(place: str, value: Any, message: str) -> str:
    """The line for a wrong value."""
    return f"{place}: {value!r} is not allowed: {message}"
