"""An entry of ``llm_configs`` as it is given, and as Ray Serve LLM takes it.

``unknown_line`` names an unknown key, or what took the place of one that Ray Serve or vLLM dropped.
"""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ray import serve

from controller.errors import ConfigError
from controller.validation import problems, shown, unknown_key
from replicas.server.startup import gc_paused
from serve_app.source import read_documents

with gc_paused():  # it imports vLLM
    from ray.llm._internal.serve.core.configs.llm_config import LLMConfig as AnyLLMConfig
    from ray.llm._internal.serve.engines.vllm.vllm_models import AsyncEngineArgs, FrontendArgs
    from ray.serve.llm import LLMConfig

ENGINE_KEYS = tuple(
    {one.name for kind in (FrontendArgs, AsyncEngineArgs) for one in dataclasses.fields(kind)}
)
OPTIONS = tuple(set(inspect.signature(serve.deployment).parameters) - {"_func_or_class", "version"})
# By an allowed key next to it: the dropped key, and its replacement (None: none).
ENGINE, DEPLOYMENT, SCALING, ENTRY = (
    "max_num_seqs",
    "max_ongoing_requests",
    "target_ongoing_requests",
    "model_loading_config",
)
REPLACED: dict[str, dict[str, str | None]] = {
    ENGINE: {
        "device": "accelerator_config: {kind: cpu, gpu or tpu} next to engine_kwargs",
        "disable_log_requests": "enable_log_requests (off if it is left out)",
        "disable_mm_preprocessor_cache": "mm_processor_cache_gb: 0",
        "cuda_graph_sizes": "cudagraph_capture_sizes",
        "max_seq_len_to_capture": "max_cudagraph_capture_size",
        "guided_decoding_backend": "structured_outputs_config: {backend: ...}",
        "speculative_model": "speculative_config: {model: ...}",
        "num_speculative_tokens": "speculative_config: {num_speculative_tokens: ...}",
        "ngram_prompt_lookup_max": "speculative_config: {prompt_lookup_max: ...}",
        "ngram_prompt_lookup_min": "speculative_config: {prompt_lookup_min: ...}",
        "rope_scaling": "hf_overrides: {rope_parameters: ...}",
        "rope_theta": "hf_overrides: {rope_parameters: ...}",
        "task": "runner and convert",
        "enable_reasoning": "reasoning_parser alone",
        "override_pooler_config": "pooler_config",
        "swap_space": "kv_offloading_size",
        "num_scheduler_steps": "async_scheduling",
        "use_v2_block_manager": None,
        "preemption_mode": None,
        "scheduler_delay_factor": None,
        "disable_async_output_proc": None,
        "max_num_partial_prefills": None,
        "max_long_partial_prefills": None,
        "num_lookahead_slots": None,
        "worker_use_ray": None,
        "engine_use_ray": None,
        "tokenizer_pool_size": None,
        "lora_extra_vocab_size": None,
    },
    DEPLOYMENT: {"max_concurrent_queries": "max_ongoing_requests"},
    SCALING: {"target_num_ongoing_requests_per_replica": "target_ongoing_requests"},
    ENTRY: {
        "resources_per_bundle": "placement_group_config: {bundle_per_worker: ...}",
        "scaling_config": "deployment_config",
        "tensor_parallelism": "engine_kwargs: {tensor_parallel_size: ...}",
    },
}


def given_entry(entry: Any, where: str) -> tuple[dict[str, Any], str]:
    """The entry as a mapping, and its place.

    Args:
        entry: a mapping, the path of a YAML file with one, or Ray's ``LLMConfig``.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(entry, str):
        entry, where = _read(entry, where), f"{where} ({entry})"
    return _mapping(entry, where), where


def llm_config(ours: dict[str, Any], where: str) -> LLMConfig:
    """Ray's object of an entry without our blocks.

    Raises:
        ConfigError: naming each wrong key.
    """
    if found := _dropped(ours, where):
        raise ConfigError(found)
    try:
        return LLMConfig.model_validate(ours)
    except ValidationError as error:
        raise ConfigError(problems(error, LLMConfig, where)) from None


def _dropped(entry: Mapping[str, Any], where: str) -> list[str]:
    """Keys that make Ray Serve and Ray Serve LLM fail without naming their place."""
    found = []
    for holder, allowed in (("engine_kwargs", ENGINE_KEYS), ("deployment_config", OPTIONS)):
        found += [
            unknown_line(f"{where}.{holder}", str(key), allowed)
            for key in entry[holder]
            if key not in allowed
        ]
    return found


def _read(path: str, where: str) -> Any:
    try:
        return read_documents(Path(path))[0]
    except ConfigError as error:
        found = [f"{where}: {path}: {problem}" for problem in error.problems]
        raise ConfigError(found) from None


def _mapping(entry: Any, where: str) -> dict[str, Any]:
    if isinstance(entry, AnyLLMConfig):  # also of PDServingArgs, which makes no public ones
        entry = _given(entry)
    if not isinstance(entry, Mapping):
        raise ConfigError(
            [f"{where}: {shown(entry)} is not allowed: a mapping, the path of one, or LLMConfig"]
        )
    return dict(entry)


def _given(model: BaseModel) -> dict[str, Any]:
    """The values that were set in Ray's own object, also inside a default mapping.

    Such a change is not among the fields that pydantic counts as set.
    """
    kept = {}
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        default = info.get_default(call_default_factory=True)
        # The tag that says which of several classes it is, as `kind` of an accelerator_config.
        tag = get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1
        if tag or name in model.model_fields_set or value != default:
            kept[name] = _given(value) if isinstance(value, BaseModel) else value
    return kept


def unknown_line(place: str, key: str, allowed: Iterable[str]) -> str:
    """The line for an unknown key; for a dropped one, with its replacement."""
    names = tuple(allowed)
    for marker, dropped in REPLACED.items():
        if marker in names and key in dropped:
            instead = dropped[key]
            cure = f"write {instead}" if instead else "leave it out, nothing took its place"
            return f"{place or 'top level'}: {shown(key)} was dropped; {cure}"
    return unknown_key(place, key, names)
