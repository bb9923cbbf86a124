"""Engine options that control cannot serve, each refused with a reason.

Everything else that vLLM lets a user choose is served: speculative tokens, LoRA, prefix caching,
priorities, async scheduling, KV connectors, limits on long prefills, decode context parallelism,
state-space models, structured output, streaming-input sessions, images.
"""

from collections.abc import Callable, Mapping
from typing import Any

from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.records import EngineLimits

ITL = "batching.sla.itl_ms"
CONTROLLER = "a controller"
TYPICAL_TOKENS = 1024  # of a typical request, prompt and answer
PREFILL_TIMING = ("prefill_schedule_interval", "long_prefill_token_threshold_adaptive")


def _cut_by(batching: BatchingConfig) -> str | None:
    """The setting by which prompts are cut into chunks; None: there is none."""
    if not batching.enforce:
        return None
    if batching.policy == "adaptive" and batching.sla.itl_ms is not None:
        return ITL
    sized = batching.policy == "paper" and batching.paper.size_chunk
    return "batching.paper.size_chunk" if sized else None


def _itl(batching: BatchingConfig) -> str | None:
    return None if batching.sla.itl_ms is None else ITL


def _always(batching: BatchingConfig) -> str | None:
    return CONTROLLER


# Option, the values that are refused, with which setting of ours, why, and what is allowed.
RULES: tuple[
    tuple[str, Callable[[Any], bool], Callable[[BatchingConfig], str | None], str, str], ...
] = (
    (
        "enable_chunked_prefill",
        lambda value: value is False,
        _cut_by,
        "control keeps a step short by the size of its chunk, and without chunks a longer"
        " prompt would never start",
        "true",
    ),
    (
        "disable_chunked_mm_input",
        lambda value: value is True,
        _cut_by,
        "an image must then fit into one chunk, and all chunks may be shorter than it",
        "false",
    ),
    (
        "prefill_schedule_interval",
        lambda value: isinstance(value, int) and value > 1,
        _cut_by,
        "vLLM then computes prompts only in one of that many steps (from 0.33 on), and chunks"
        " are sized for every step",
        "1",
    ),
    (
        "long_prefill_token_threshold_adaptive",
        lambda value: value is True,
        _cut_by,
        "the limit for one prompt is then a share of max_num_batched_tokens, not of the chunk"
        " that fits into the step",
        "false",
    ),
    (
        "pipeline_parallel_size",
        lambda value: isinstance(value, int) and value > 1,
        _itl,
        "a token then takes several steps, and control times single steps",
        "1 (tensor_parallel_size shards a model, too)",
    ),
    (
        "runner",
        lambda value: value == "pooling",
        _itl,
        "a pooling model generates no tokens, so there is no time between them",
        "generate",
    ),
    (
        "diffusion",
        lambda value: value is True,
        _itl,
        "a step of a diffusion model does not end with one token for each request",
        "a model that generates token by token",
    ),
)
RANKS = (
    "data_parallel_size",
    lambda value: isinstance(value, int) and value > 1,
    _always,
    "each rank has an engine of its own, and limits reach one engine of a replica",
    "1, and a replica for each rank",
)


def option_problems(
    batching: BatchingConfig, options: Mapping[str, Any], where: str, *, has_controller: bool
) -> list[str]:
    """Options that cannot be served, one line each.

    Args:
        options: vLLM's engine options by name; defaults may be left out.
        where: prefix of an option's name in messages.
        has_controller: whether the replica has a controller.
    """
    found = []
    for key, refused, excluded_by, why, allowed in (*RULES, RANKS) if has_controller else RULES:
        value = options.get(key)
        setting = excluded_by(batching)
        if setting is not None and refused(value):
            found.append(
                f"{where}.{key}: {value!r} is not allowed with {setting}: {why};"
                f" allowed: {allowed}{_or_without(setting)}"
            )
    return found


def _or_without(setting: str) -> str:
    return "" if setting == CONTROLLER else f", or no {setting}"


def check_options(batching: BatchingConfig, scheduler: Any, *, has_controller: bool) -> None:
    """Refuse options of a started engine that cannot be served.

    Args:
        scheduler: vLLM's, already constructed: models change some options.

    Raises:
        ConfigError: naming each option, its value and what is allowed.
    """
    config, model = scheduler.vllm_config, scheduler.vllm_config.model_config
    images = scheduler.max_num_encoder_input_tokens > 0
    options = {
        "enable_chunked_prefill": config.scheduler_config.enable_chunked_prefill,
        "disable_chunked_mm_input": images and config.scheduler_config.disable_chunked_mm_input,
        # Only vLLM 0.31 and later have the second one.
        **{key: getattr(config.scheduler_config, key, None) for key in PREFILL_TIMING},
        "pipeline_parallel_size": config.parallel_config.pipeline_parallel_size,
        "data_parallel_size": config.parallel_config.data_parallel_size,
        "runner": model.runner_type,
        "diffusion": model.is_diffusion,
    }
    if found := option_problems(batching, options, "engine", has_controller=has_controller):
        raise ConfigError(found)


def cap_name(scheduler: Any) -> str:
    """vLLM's attribute for the cap on running requests; 0.31 and later have one just for that."""
    later = "max_num_active_reqs"
    return later if hasattr(scheduler, later) else "max_num_running_reqs"


def larger_batch(engine: EngineLimits) -> str | None:
    """Advice if the engine's memory holds more requests than its buffers; None: it does not.

    vLLM sizes its buffers before it makes the scheduler, so nothing here can make them larger.
    """
    tokens = min(TYPICAL_TOKENS, engine.max_model_len or TYPICAL_TOKENS)
    held = engine.kv_tokens // tokens
    if held <= engine.max_num_seqs:
        return None
    return (
        f"At most {engine.max_num_seqs} requests run at once, as vLLM was started; its KV memory"
        f" holds {held} of {tokens} tokens each. --max-num-seqs {held} lets them run."
    )


def graph_tokens(vllm_config: Any) -> int:
    """Tokens of the largest step with a captured CUDA graph; 0: none."""
    return int(vllm_config.compilation_config.max_cudagraph_capture_size or 0)
