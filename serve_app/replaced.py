"""Keys that Ray Serve or vLLM have dropped, and their replacements."""

from collections.abc import Iterable

from controller.validation import shown, unknown_key

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


def unknown_line(place: str, key: str, allowed: Iterable[str]) -> str:
    """The line for an unknown key; for a dropped one, with its replacement."""
    names = tuple(allowed)
    for marker, dropped in REPLACED.items():
        if marker in names and key in dropped:
            instead = dropped[key]
            cure = f"write {instead}" if instead else "leave it out, nothing took its place"
            return f"{place or 'top level'}: {shown(key)} was dropped; {cure}"
    return unknown_key(place, key, names)
