"""Applications that tests deploy."""

from pathlib import Path
from typing import Any

from serve_app.config import AUTOSCALING_POLICY

MAX_NUM_SEQS = 64


def application(
    name: str, model_path: Path, *, deployment: dict[str, Any], **blocks: Any
) -> dict[str, Any]:
    """One application of the tiny model at ``/name``; ``blocks`` are batching and scaling."""
    entry = {
        "model_loading_config": {"model_id": f"tiny-{name}", "model_source": str(model_path)},
        "accelerator_config": {"kind": "cpu"},
        "placement_group_config": {"bundle_per_worker": {"CPU": 0.5}},
        "runtime_env": {
            "env_vars": {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
        },
        "engine_kwargs": {
            "max_num_seqs": MAX_NUM_SEQS,
            "max_num_batched_tokens": 1024,
            "max_model_len": 512,
            "block_size": 32,
            "kv_cache_memory_bytes": 32 << 20,
            "enforce_eager": True,
            "dtype": "float32",  # so that a greedy answer does not depend on its batch
        },
        "deployment_config": {
            "ray_actor_options": {"num_cpus": 0.5},
            "max_ongoing_requests": 512,
            "health_check_period_s": 2,
            "graceful_shutdown_wait_loop_s": 0.2,
            **deployment,
        },
        **blocks,
    }
    return {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": "serve_app:build_app",
        "args": {"llm_configs": [entry]},
    }


def scaled_soon(**more: float) -> dict[str, Any]:
    """An autoscaling policy that remembers seconds: the ``scaling`` block has no keys for them."""
    kwargs = {"target_utilization": 1, "drain_s": 20, "start_s": 5, "peak_s": 10, "peak_starts": 0}
    return {"policy_function": AUTOSCALING_POLICY, "policy_kwargs": {**kwargs, **more}}
