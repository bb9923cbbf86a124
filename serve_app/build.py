"""The application builder that ``serve deploy`` calls."""

from pathlib import Path
from typing import Any

import yaml
from ray.serve import Application
from ray.serve.llm import LLMConfig, build_openai_app

from controller.errors import ConfigError
from controller.validation import unknown_key
from serve_app.config import ray_llm_config

KEYS = ("llm_configs", "ingress_cls_config", "ingress_deployment_config")


def build_app(args: dict[str, Any]) -> Application:
    """Ray Serve LLM's OpenAI-compatible application, every replica of it under the controller.

    Args:
        args: what ``ray.serve.llm:build_openai_app`` takes; each entry of ``llm_configs`` (a
            dict, or the path of a YAML file with one) may hold ``batching`` and ``scaling``.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """
    unknown = [unknown_key("args", key, KEYS) for key in args if key not in KEYS]
    if unknown:
        raise ConfigError(unknown)
    entries = args.get("llm_configs") or []
    configs = [
        LLMConfig.model_validate(ray_llm_config(_entry(entry), f"llm_configs[{index}]"))
        for index, entry in enumerate(entries)
    ]
    return build_openai_app({**args, "llm_configs": configs})


def _entry(entry: Any) -> dict[str, Any]:
    if isinstance(entry, str):
        entry = yaml.safe_load(Path(entry).read_text())
    if isinstance(entry, LLMConfig):
        entry = entry.model_dump(exclude_unset=True)
    return dict(entry)
