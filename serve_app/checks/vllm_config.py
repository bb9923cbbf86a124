"""vLLM's own verdict on a model and its flags, in its own words.

If a model's config.json and its device are on this machine, vLLM makes its configuration as a
replica would, without the hub.
"""

import copy
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from replicas.engine.executor import accelerator_kind
from serve_app.environment import is_cpu_build

LONGEST = 600  # characters of a sentence; vLLM lists 300 architectures
# One error of pydantic's, below the line that counts them: a place, if it is one, and a message.
PYDANTIC = re.compile(r"^(?:(\S+)\n)?  (\S.*?) \[type=\w+, input_value=", re.MULTILINE | re.DOTALL)
PREFIXES = ("Value error, ", "Assertion failed, ")
# Not the configuration's fault: a device, a package or a file that this machine lacks.
LACKING = (OSError, ImportError, RuntimeError)


@contextmanager
def silent(level: int) -> Iterator[None]:
    """Without the logs of this level and below."""
    lowest = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(lowest)


def sentence(text: str) -> str:
    """The message of vLLM's error, without pydantic's frame, and cut if it is long."""
    errors = []
    for place, message in PYDANTIC.findall(text):
        for prefix in PREFIXES:
            message = message.removeprefix(prefix)
        errors.append(f"{place}: {message}" if place else message)
    line = " ".join("; ".join(errors or [text]).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def vllm_problems(entry: Mapping[str, Any], where: str) -> list[str]:
    """What vLLM refuses in an entry of ``llm_configs`` without our blocks.

    Nothing is reported if the model's folder is not here, or would run code of its own.
    """
    import torch

    asked: dict[str, Any] = {"engine_kwargs": {}, **copy.deepcopy(dict(entry))}
    loading, engine = asked["model_loading_config"], asked["engine_kwargs"]
    folder = Path(str(loading.get("model_source") or loading["model_id"]))
    here = any(  # by Hugging Face's own layout, or Mistral's
        os.path.isfile(folder / name)  # noqa: PTH113 (any name)
        for name in ("config.json", "params.json")
    )
    on_cpu = accelerator_kind(entry) == "cpu"
    device = is_cpu_build() if on_cpu else torch.cuda.is_available()
    if not here or not device or engine.get("trust_remote_code") or engine.get("hf_config_path"):
        return []
    draft = (engine.get("speculative_config") or {}).get("model")
    if isinstance(draft, str) and not draft.startswith(("/", ".", "~")):
        del engine["speculative_config"]  # on the hub
    error = _refused(asked)
    hub = type(error).__module__.startswith("huggingface_hub")
    if error is None or hub or isinstance(error, LACKING) or "failed to be inspected" in str(error):
        return []
    return [f"{where}: vLLM refuses {str(folder)!r}: {sentence(str(error))}"]


def _refused(entry: Mapping[str, Any]) -> BaseException | None:
    """Asks vLLM silently, without the hub, with a replica's environment variables."""
    from huggingface_hub import constants
    from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
    from ray.llm._internal.serve.engines.vllm.vllm_engine import _get_vllm_engine_config
    from vllm.transformers_utils import repo_utils

    variables = (entry.get("runtime_env") or {}).get("env_vars") or {}
    own = {str(key): str(value) for key, value in variables.items()}
    with (
        patch.dict(os.environ, own),
        patch.object(constants, "HF_HUB_OFFLINE", True),
        patch.object(repo_utils, "time", SimpleNamespace(sleep=lambda s: None)),
        silent(logging.CRITICAL),
    ):
        try:
            # A copy: Ray writes into the nested blocks of what it is given.
            _get_vllm_engine_config(LLMConfig.model_validate(copy.deepcopy(entry)))
        except Exception as error:
            return error.__context__ or error  # Ray hides vLLM's own in one of its own
    return None
