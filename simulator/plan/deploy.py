"""The Serve config that deploys a plan: ``brimful check`` accepts it."""

from pathlib import Path
from typing import Any

import yaml

from controller.errors import ConfigError
from serve_app.planning.model_config import repository
from simulator.plan.answer import Plan

MOST_REPLICAS = 10  # without a demand: what autoscaling may go up to
ONGOING = 4  # times the batch: requests of a replica that run or wait


def serve_config(plan: Plan) -> dict[str, Any]:
    """As ``configs/h100.yaml`` is written."""
    own = plan.setting
    path = Path(own.model)
    folder = path if path.is_dir() else path.parent
    source = str(folder.resolve()) if path.exists() else repository(own.model)
    seqs = max(plan.cap, 2)
    engine: dict[str, Any] = {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": max(own.profile.max_num_batched_tokens, seqs),
        "max_model_len": own.max_model_len,
        "gpu_memory_utilization": own.budget.utilization,
    }
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
            "autoscaling_config": {
                "min_replicas": 1,
                "max_replicas": most,
                "metrics_interval_s": 2,
                "look_back_period_s": 10,
            },
        },
        "batching": {
            "policy": "adaptive",
            "sla": {"itl_ms": own.sla.itl_ms, "ttft_ms": own.sla.ttft_ms, "percentile": 99},
            "max_running": {"min": min(4, seqs), "max": seqs},
        },
        "scaling": {"target_utilization": 1.0, "drain_s": 20},
    }
    application = {
        "name": "llm",
        "route_prefix": "/",
        "import_path": "serve_app:build_app",
        "args": {"llm_configs": [entry]},
    }
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": "127.0.0.1", "port": 8000},
        "applications": [application],
    }


def write(plan: Plan, path: Path) -> None:
    """Write it.

    Raises:
        ConfigError: the file cannot be written.
    """
    own = plan.setting
    head = (
        f"# brimful plan {own.model}: {own.tp} x {own.gpu} a replica,"
        f" {plan.capacity_per_s:.2f} requests/s inside {own.sla.itl_ms:g} ms between tokens\n"
        f"# ({own.workload}). brimful check {path} && serve deploy {path}\n"
    )
    try:
        path.write_text(head + yaml.safe_dump(serve_config(plan), sort_keys=False))
    except OSError as error:
        raise ConfigError([f"--write: {path} cannot be written: {error.strerror}"]) from None
