"""Do the model folders that a configuration names exist?"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.validation import join

# Hugging Face's and Mistral's own layout.
CONFIG_FILES = ("config.json", "params.json")


def looks_local(source: str) -> bool:
    """A path, and not an id of the Hugging Face Hub or a URI: no owner's name begins like this."""
    return source.startswith(("/", ".", "~"))


def missing_models(entry: Mapping[str, Any], where: str) -> list[str]:
    """Model, tokenizer and draft model of an entry of ``llm_configs``, where they are paths."""
    loading = entry.get("model_loading_config") or {}
    engine = entry.get("engine_kwargs") or {}
    model = "model_source" if loading.get("model_source") is not None else "model_id"
    found = _missing(loading.get(model), join(where, ["model_loading_config", model]), CONFIG_FILES)
    draft = engine.get("speculative_config") or {}
    for place, block, key in (
        (("model_loading_config",), loading, "tokenizer_source"),
        (("engine_kwargs",), engine, "tokenizer"),
        (("engine_kwargs", "speculative_config"), draft, "model"),
    ):
        if isinstance(block, dict):
            found += _missing(block.get(key), join(where, [*place, key]))
    return found


def _missing(source: Any, where: str, wanted: tuple[str, ...] = ()) -> list[str]:
    if not isinstance(source, str) or not looks_local(source):
        return []
    path = Path(source)
    if not os.path.exists(source):  # noqa: PTH110 - of a name that no file can have this says no
        return [f"{where}: {source!r} is not allowed: no such folder (looked in {path.resolve()})"]
    if path.is_dir() and wanted and not any((path / name).exists() for name in wanted):
        return [f"{where}: {source!r} is not allowed: it holds no {' or '.join(wanted)}"]
    return []
