"""Applications on emulated accelerators and the batch API: they run side by side."""

from pathlib import Path
from typing import Any

from tests.ray.applications import application, scaled_soon

PROFILE = "paper-fig3"
SLOTS, WAITING = 4, 4
OVERLOAD_SERVER = "EmulatedServer:tiny-overload"
OVERLOAD_CLASSES = {
    # Beyond any forecast: what tests before it left unfinished is a queue that hardly moved.
    "gold": {"ttft_ms": 600_000, "priority": 0, "queue_timeout_s": 600},
    "silver": {"ttft_ms": 60_000, "priority": 10, "sheddable": True, "default": True},
}


def overloaded(model_path: Path, **user_config: Any) -> dict[str, Any]:
    """One replica on an emulated accelerator, with three classes and a short queue."""
    app = application(
        "overload",
        model_path,
        deployment={"num_replicas": 1},
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
    if user_config:
        app["deployments"] = [{"name": OVERLOAD_SERVER, "user_config": user_config}]
    return app


BATCH_CLASSES = {
    "online": {"ttft_ms": 20_000, "priority": 0, "default": True},
    "late": {"priority": 10, "sheddable": True, "queue_timeout_s": 60, "autoscale": False},
}


def batched_applications(model_path: Path, port: int, folder: Path) -> list[dict[str, Any]]:
    """A model with a class for batches, and the batch API before it."""
    app = application(
        "batched",
        model_path,
        deployment={"num_replicas": 2},
        batching={"policy": "adaptive", "sla": {"itl_ms": 1000}},
        classes=BATCH_CLASSES,
        emulate={"profile": PROFILE, "time_scale": 2},
    )
    batches = {
        "name": "batches",
        "route_prefix": "/batches",
        "import_path": "serve_app.batches:build",
        "args": {
            "serves": f"http://127.0.0.1:{port}/batched/v1",
            "folder": str(folder),
            "service_tier": "late",
            "urgent_tier": "online",
        },
    }
    return [app, batches]


def left_alone(model_path: Path) -> dict[str, Any]:
    """One replica, or none while nobody asks."""
    return application(
        "seldom",
        model_path,
        deployment={
            "autoscaling_config": {
                "min_replicas": 0,
                "initial_replicas": 1,
                "max_replicas": 2,
                "downscale_delay_s": 5,
                "look_back_period_s": 5,
                "policy": scaled_soon(),
            }
        },
        batching={"policy": "static"},
        emulate={"profile": PROFILE},
    )


def emulated_applications(model_path: Path, port: int, folder: Path) -> list[dict[str, Any]]:
    """What is deployed.

    Args:
        port: of HAProxy.
        folder: of the batch API.
    """
    batched = batched_applications(model_path, port, folder)
    return [overloaded(model_path), *batched, left_alone(model_path)]
