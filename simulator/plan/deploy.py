"""The Serve config that deploys a plan: ``brimful check`` accepts it."""

from pathlib import Path
from typing import Any

from serve_app.launch import model_config
from serve_app.launch.model_config import autoscaled, document
from serve_app.planning.model_config import repository
from simulator.plan.answer import Plan

MOST_REPLICAS = 10  # bound of autoscaling without a demand
ONGOING = 4  # multiple of the batch: requests of a replica that run or wait


def serve_config(plan: Plan) -> dict[str, Any]:
    """A config like ``configs/h100.yaml``."""
    own = plan.setting
    path = Path(own.model)
    folder = path if path.is_dir() else path.parent
    source, _, revision = repository(own.model).partition("@")
    if path.exists():
        source, revision = str(folder.resolve()), ""
    seqs = max(plan.cap, 2)
    engine: dict[str, Any] = {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": max(own.profile.max_num_batched_tokens, seqs),
        "max_model_len": own.max_model_len,
        "gpu_memory_utilization": own.budget.utilization,
    }
    if revision:
        engine["revision"] = revision
    if own.tp > 1:
        engine["tensor_parallel_size"] = own.tp
    if own.layout.kv_bytes < own.shape.dtype_bytes and not own.shape.kv_bits:
        engine["kv_cache_dtype"] = "fp8"
    most = MOST_REPLICAS if plan.demand is None else max(plan.demand.replicas, 1)
    entry = {
        "model_loading_config": {
            "model_id": own.shape.name,
            "model_source": source,
        },
        "accelerator_type": own.card.accelerator_type,
        "engine_kwargs": engine,
        "deployment_config": {
            "max_ongoing_requests": ONGOING * seqs,
            "autoscaling_config": autoscaled(1, most),
        },
        "batching": {
            "policy": "adaptive",
            "sla": {"itl_ms": own.sla.itl_ms, "ttft_ms": own.sla.ttft_ms, "percentile": 99},
            "max_running": {"min": min(4, seqs), "max": seqs},
        },
        "scaling": {"target_utilization": 1.0, "drain_s": 20},
    }
    return document(entry)


def write(plan: Plan, path: Path) -> None:
    """Write the config.

    Raises:
        ConfigError: the file cannot be written.
    """
    own = plan.setting
    head = (
        f"# brimful plan {own.model}: {own.tp} x {own.gpu} a replica,"
        f" {plan.capacity_per_s:.2f} requests/s inside {own.sla.itl_ms:g} ms between tokens\n"
        f"# ({own.workload}). brimful check {path} && serve deploy {path}\n"
    )
    model_config.write(serve_config(plan), head, path)
