"""Every private name of vLLM that the engine side uses, and the ones that a version lacks.

Imports are read from our own source; attributes are listed here, and
``tests/unit/replicas/test_vllm_private.py`` fails if a name is used that is not listed.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from replicas.workarounds.vllm_source import VllmSource

Number = tuple[int, int]

ROOT = Path(__file__).parents[2]
ENGINE = (  # control in EngineCore
    "replicas/engine",
    "replicas/workarounds/cpu_generators.py",
    "replicas/workarounds/cpu_workers.py",
    "replicas/workarounds/grammar_faults.py",
)
OR, SINCE = "|", "@"  # its other name in another version; the first version that has it
SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
REQUEST = "vllm.v1.request:Request"
ATTRIBUTES: dict[str, str] = {
    SCHEDULER: (
        "block_size cache_config connector finished_recving_kv_req_ids"
        " grammar_compile_error_reqs@0.27 hash_block_size@0.27 kv_cache_config kv_cache_manager"
        " lora_config max_num_active_reqs|max_num_running_reqs max_num_encoder_input_tokens"
        " max_model_len max_num_scheduled_tokens need_mamba_block_aligned_split num_spec_tokens"
        " num_waiting_for_streaming_input pause_state policy requests running scheduler_config"
        " skipped_waiting|kv_holding_waiting structured_output_manager vllm_config waiting"
        # Methods that are overridden, called or undone.
        " __init__ _free_request _preempt_request _update_after_schedule"
        " _update_request_as_session _update_request_with_output add_request"
        " get_num_unfinished_requests get_request_counts reset_prefix_cache schedule"
        " set_pause_state update_from_output"
    ),
    "vllm.v1.core.sched.async_scheduler:AsyncScheduler": (
        "_update_after_schedule _update_request_with_output"
    ),
    REQUEST: (
        "_output_token_ids arrival_time block_hashes drop_stale_output@0.27 is_finished"
        " is_prefill_chunk kv_transfer_params lora_request max_tokens num_computed_tokens"
        " num_output_tokens num_prompt_tokens num_stale_output_tokens@0.27 num_tokens"
        " output_token_ids prefill_stats priority prompt_token_ids request_id sampling_params"
        " skip_reading_prefix_cache spec_token_ids status"
        " stop_reason structured_output_request use_structured_output"
    ),
    "vllm.v1.request:RequestStatus": (
        "FINISHED_ABORTED FINISHED_ERROR FINISHED_LENGTH_CAPPED FINISHED_REPETITION"
        " FINISHED_STOPPED PREEMPTED WAITING WAITING_FOR_REMOTE_KVS"
        " WAITING_FOR_STREAMING_REQ WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR"
    ),
    "vllm.v1.core.sched.request_queue:RequestQueue": (
        "add_request peek_request pop_request prepend_request prepend_requests remove_request"
        " remove_requests"
    ),
    "vllm.v1.core.sched.request_queue:PriorityRequestQueue": "_heap",
    "vllm.v1.core.sched.interface:PauseState": "UNPAUSED",
    "vllm.v1.core.sched.output:SchedulerOutput": (
        "num_scheduled_tokens scheduled_cached_reqs scheduled_new_reqs scheduled_spec_decode_tokens"
        " total_num_scheduled_tokens"
    ),
    "vllm.v1.core.sched.output:CachedRequestData": (
        "num_computed_tokens num_output_tokens req_ids resumed_req_ids"
    ),
    "vllm.v1.core.sched.output:NewRequestData": "num_computed_tokens prompt_token_ids req_id",
    "vllm.v1.metrics.stats:PrefillStats": "num_external_cached_tokens",
    "vllm.v1.core.kv_cache_manager:KVCacheManager": (
        "block_pool coordinator enable_caching kv_cache_config"
    ),
    "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator": "single_type_managers",
    "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager": "req_to_blocks",
    "vllm.v1.core.block_pool:BlockPool": "get_cached_block get_num_free_blocks num_gpu_blocks",
    "vllm.v1.core.kv_cache_utils:KVCacheBlock": "is_null ref_cnt",
    "vllm.v1.kv_cache_interface:KVCacheConfig": "kv_cache_groups kv_cache_tensors",
    "vllm.config.scheduler:SchedulerConfig": (
        "async_scheduling disable_chunked_mm_input enable_chunked_prefill"
        " long_prefill_token_threshold long_prefill_token_threshold_adaptive@0.31"
        " max_num_batched_tokens max_num_seqs prefill_schedule_interval"
    ),
    "vllm.config.cache:CacheConfig": "block_size kv_cache_size_tokens",
    "vllm.config.compilation:CompilationConfig": "max_cudagraph_capture_size",
    "vllm.config.vllm:VllmConfig": "additional_config kv_transfer_config",
    "vllm.v1.structured_output.request:StructuredOutputRequest": "_grammar grammar",
    "vllm.v1.structured_output:StructuredOutputManager": "backend executor",
    "vllm.v1.engine:EngineCoreOutputs": "outputs",
    "vllm.v1.engine:EngineCoreOutput": "new_token_ids request_id",
    "vllm.v1.engine.core:EngineCore": "add_request model_executor scheduler",
    "vllm.v1.executor.abstract:Executor": "collective_rpc",
    "vllm.v1.engine.core:EngineCoreProc": "run_engine_core",
    "vllm.v1.engine.core_client:AsyncMPClient": ("call_utility_async"),
    "vllm.v1.engine.core_client:SyncMPClient": "call_utility",
}


def number_of(release: str) -> Number:
    """The first two numbers of a version; a version without any counts as newest."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (sys.maxsize, 0) if found is None else (int(found[1]), int(found[2]))


class Thing(NamedTuple):
    """One attribute, by all its names.

    Args:
        since: the first version that has it; control needs it from then on.
    """

    names: tuple[str, ...]
    since: Number = (0, 0)

    def __str__(self) -> str:
        first, *others = self.names
        module = first.partition(":")[0]
        short = (one.rpartition(".")[2] if one.startswith(f"{module}:") else one for one in others)
        return " or ".join([first, *short])

    def there(self, source: VllmSource) -> str | None:
        """Its name in this version; None: it does not exist."""
        return next((name for name in self.names if source.has(name)), None)


def attributes() -> Iterator[Thing]:
    """The attributes of ``ATTRIBUTES``."""
    for owner, listed in ATTRIBUTES.items():
        for one in listed.split():
            names, _, since = one.partition(SINCE)
            found = tuple(f"{owner}.{name}" for name in names.split(OR))
            yield Thing(found, number_of(since or "0.0"))


def imported(*places: str, root: Path = ROOT) -> list[Thing]:
    """The names that the modules in these folders import from vLLM, at any place.

    Args:
        places: folders or files, from ``root`` on.
    """
    found = set()
    for place in places:
        at = root / place
        for path in sorted(at.rglob("*.py")) if at.is_dir() else [at]:
            found |= set(_imports(ast.parse(path.read_text(encoding="utf-8"))))
    return [Thing((name,)) for name in sorted(found)]


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
            yield from (f"{node.module}:{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("vllm."))


def missing(things: Iterable[Thing], release: str, source: VllmSource) -> list[str]:
    """The names that a version lacks, and where they may be now."""
    found, number = [], number_of(release)
    for thing in things:
        if number >= thing.since and thing.there(source) is None:
            now = source.elsewhere(thing.names[0])
            found.append(f"{thing} ({f'now in {now}' if now else 'gone'})")
    return found
