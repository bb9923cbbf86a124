"""vLLM's own verdict on a model and its flags, in its own words.

Where a model's config.json is on this machine, vLLM makes its configuration as a replica would,
without a device and without the hub.
"""

import copy
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from replicas.engine.executor import accelerator_kind
from serve_app.checks.model_files import CONFIG_FILES, looks_local
from serve_app.environment import is_cpu_build

LONGEST = 600  # characters of a sentence; vLLM lists 300 architectures
# One error of pydantic's, below the line that counts them: a place, if it is one, and a message.
PYDANTIC = re.compile(r"^(?:(\S+)\n)?  (\S.*?) \[type=\w+, input_value=", re.MULTILINE | re.DOTALL)
PREFIXES = ("Value error, ", "Assertion failed, ")
# Not the configuration's fault: a device, a package or a file that this machine lacks.
LACKING = (OSError, ImportError, RuntimeError)
NOT_INSPECTED = "failed to be inspected"


def sentence(text: str) -> str:
    """What an error of vLLM's says: pydantic's frame is left out, and the end of what is long."""
    errors = []
    for place, message in PYDANTIC.findall(text):
        for prefix in PREFIXES:
            message = message.removeprefix(prefix)
        errors.append(f"{place}: {message}" if place else message)
    line = " ".join("; ".join(errors or [text]).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def vllm_problems(entry: Mapping[str, Any], where: str) -> list[str]:
    """What vLLM has against an entry of ``llm_configs`` without our blocks.

    Nothing is said where the model's folder is not here, or would run code of its own.
    """
    asked: dict[str, Any] = {"engine_kwargs": {}, **copy.deepcopy(dict(entry))}
    loading, engine = asked["model_loading_config"], asked["engine_kwargs"]
    folder = Path(str(loading.get("model_source") or loading["model_id"]))
    here = any(os.path.isfile(folder / name) for name in CONFIG_FILES)  # noqa: PTH113 (any name)
    if not here or engine.get("trust_remote_code") or engine.get("hf_config_path"):
        return []
    drafts = engine.get("speculative_config") or {}
    draft = drafts.get("model") if isinstance(drafts, dict) else None
    if isinstance(draft, str) and not looks_local(draft) and not Path(draft).is_dir():
        del engine["speculative_config"]  # on the hub
    variables = (asked.get("runtime_env") or {}).get("env_vars") or {}
    with _alone(variables):
        error = _refused(asked)
        if error is not None and not (is_cpu_build() and accelerator_kind(entry) == "cpu"):
            with _on_a_card():  # what is amiss with this machine alone is no fault
                error = _refused(asked)
    hub = type(error).__module__.startswith("huggingface_hub")
    if error is None or hub or isinstance(error, LACKING) or NOT_INSPECTED in str(error):
        return []
    return [f"{where}: vLLM refuses {str(folder)!r}: {sentence(str(error))}"]


def _refused(entry: Mapping[str, Any]) -> BaseException | None:
    from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
    from ray.llm._internal.serve.engines.vllm.vllm_engine import _get_vllm_engine_config

    try:
        # A copy: Ray writes into the nested blocks of what it is given.
        _get_vllm_engine_config(LLMConfig.model_validate(copy.deepcopy(entry)))
    except Exception as error:
        return error.__context__ or error  # Ray hides vLLM's own in one of its own
    return None


@contextmanager
def _alone(variables: Mapping[str, Any]) -> Iterator[None]:
    """vLLM without the hub, without waiting for it, in a replica's variables, and silent."""
    import torch
    from huggingface_hub import constants
    from vllm.model_executor.models import registry
    from vllm.transformers_utils import repo_utils

    before, lowest = dict(os.environ), logging.root.manager.disable
    with ExitStack() as exits:
        exits.enter_context(_instead(constants, "HF_HUB_OFFLINE", True))
        exits.enter_context(_instead(repo_utils, "time", SimpleNamespace(sleep=lambda s: None)))
        if not torch.cuda.is_available():
            # A model class is looked at in a process of its own, for the sake of CUDA: 6 s.
            exits.enter_context(_instead(registry, "_run_in_subprocess", lambda look: look()))
        os.environ.update({str(key): str(value) for key, value in variables.items()})
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(lowest)
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _on_a_card() -> Iterator[None]:
    """vLLM takes this machine for one with a large card, and asks nothing of it."""
    from vllm.platforms import current_platform
    from vllm.platforms.interface import Platform, PlatformEnum

    class Card(Platform):
        _enum = PlatformEnum.CUDA
        device_name = device_type = "cuda"
        ray_device_key = "GPU"

        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> None:
            return None

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return ""

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return 2**40  # whose default batch is the largest

        def is_cumem_allocator_available(self) -> bool:
            return True

    with _instead(current_platform, "__class__", Card):
        yield


@contextmanager
def _instead(holder: Any, name: str, value: Any) -> Iterator[None]:
    if not hasattr(holder, name):  # another version's, which is left as it is
        yield
        return
    theirs = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, theirs)
