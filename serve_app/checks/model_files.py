"""Do the model folders that a configuration names exist?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.validation import join
from serve_app.checks.findings import Findings

# Hugging Face's and Mistral's own layout.
CONFIG_FILES = ("config.json", "params.json")


def looks_local(source: str) -> bool:
    """A path, and not an id of the Hugging Face Hub or a URI: no owner's name begins like this."""
    return source.startswith(("/", ".", "~"))


def missing_models(entry: Mapping[str, Any], where: str, findings: Findings) -> None:
    """Look for model, tokenizer and draft model of an entry of ``llm_configs``.

    A folder that is not here may be on the nodes: a note. One that holds no model is a problem.
    """
    loading = entry.get("model_loading_config") or {}
    engine = entry.get("engine_kwargs") or {}
    model = "model_source" if loading.get("model_source") is not None else "model_id"
    place = join(where, ["model_loading_config", model])
    _look(loading.get(model), place, findings, CONFIG_FILES)
    draft = engine.get("speculative_config") or {}
    for path, block, key in (
        (("model_loading_config",), loading, "tokenizer_source"),
        (("engine_kwargs",), engine, "tokenizer"),
        (("engine_kwargs", "speculative_config"), draft, "model"),
    ):
        if isinstance(block, dict):
            _look(block.get(key), join(where, [*path, key]), findings)


def _look(source: Any, where: str, findings: Findings, wanted: tuple[str, ...] = ()) -> None:
    if not isinstance(source, str) or not looks_local(source):
        return
    path = Path(source)
    try:
        path.stat()
    except FileNotFoundError:
        told = f"{where}: {source!r}: no such folder here (looked in {path.resolve()})"
        findings.notes.append(f"{told}; every node that runs a replica needs it")
    except (OSError, ValueError) as error:  # a name that no file can have
        reason = getattr(error, "strerror", None) or error
        findings.add([f"{where}: {source!r} is not allowed: {reason}"])
    else:
        if path.is_dir() and wanted and not any((path / name).exists() for name in wanted):
            problem = f"{where}: {source!r} is not allowed: it holds no {' or '.join(wanted)}"
            findings.add([problem])
