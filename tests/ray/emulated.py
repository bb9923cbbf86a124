"""A replica on an emulated accelerator, and the batch API before it."""

from pathlib import Path
from typing import Any

from tests.ray.applications import application, scaled_soon

SLOTS, WAITING = 8, 4
OVERLOAD_SERVER = "EmulatedServer:tiny-overload"
OVERLOAD_CLASSES = {
    # Beyond any forecast: what tests before it left unfinished is a queue that hardly moved.
    "gold": {"ttft_ms": 600_000, "priority": 0, "queue_timeout_s": 600},
    "silver": {"ttft_ms": 60_000, "priority": 10, "sheddable": True, "default": True},
    "late": {"priority": 20, "sheddable": True, "queue_timeout_s": 60, "autoscale": False},
}
BATCH_CLASSES = {
    "gold": {"ttft_ms": 20_000, "priority": 0, "default": True},
    "late": OVERLOAD_CLASSES["late"],
}
SCALING = {
    "min_replicas": 0,
    "initial_replicas": 1,
    "max_replicas": 2,
    "downscale_delay_s": 1,
    "look_back_period_s": 2,
    "metrics_interval_s": 0.5,
    "policy": scaled_soon(peak_s=3),
}


def overloaded(model_path: Path, replicas: int = 1, **user_config: Any) -> dict[str, Any]:
    """So many replicas with three classes and a short queue; at 0, one if somebody asks.

    Replicas that run go on if ``replicas`` and ``user_config`` change.
    """
    app = application(
        "overload",
        model_path,
        deployment={"autoscaling_config": SCALING},
        batching={"policy": "static"},
        emulate={"profile": "paper-fig3", "kv_tokens": 8192},
        classes=OVERLOAD_CLASSES,
        admission={"max_waiting": WAITING, "shed_at": 1.0},
    )
    app["args"]["llm_configs"][0]["engine_kwargs"] = {
        "max_num_seqs": SLOTS,
        "max_num_batched_tokens": 512,
        "max_model_len": 1024,
        "enable_prefix_caching": False,
    }
    scaling = {**SCALING, "min_replicas": replicas, "max_replicas": replicas or 1}
    app["deployments"] = [{"name": OVERLOAD_SERVER, "autoscaling_config": scaling}]
    if user_config:
        app["deployments"][0]["user_config"] = user_config
    return app


def batches(port: int, folder: Path) -> dict[str, Any]:
    """The batch API; ``port`` is HAProxy's."""
    return {
        "name": "batches",
        "route_prefix": "/batches",
        "import_path": "serve_app.batches:build",
        "args": {
            "serves": f"http://127.0.0.1:{port}/overload/v1",
            "folder": str(folder),
            "service_tier": "late",
            "urgent_tier": "gold",
        },
    }
