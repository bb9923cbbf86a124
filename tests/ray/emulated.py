"""Applications on emulated accelerators, the batch API and the console: they run side by side."""

from pathlib import Path
from typing import Any

from simulator.virtual.plan import EngineOptions
from tests.ray.applications import application, scaled_soon
from tests.ray.collector import ENV as SPANS_BY_HTTP

# A step takes 80 to 150 ms, in which one core can do what the stack has to do beside it.
SCALE = 3
PROFILE = "paper-fig3"
ENGINE = EngineOptions(max_num_seqs=48, max_num_batched_tokens=512, block_size=32)
KV_TOKENS = 5120  # about 40 requests of the burst: memory binds there
# A variable of Ray's processes with the keys of the console, and the one key in it.
KEYS, KEY = "BRIMFUL_TEST_CONSOLE_KEYS", "sk-console-0123456789"
CONSOLE = {
    "name": "console",
    "route_prefix": "/console",
    "import_path": "serve_app.console:build",
    "args": {"security": {"keys": {"env": KEYS}}},
}


SLOTS, WAITING = 4, 4
OVERLOAD_SERVER = "EmulatedServer:tiny-overload"
OVERLOAD_CLASSES = {
    # Beyond any forecast: what tests before it left unfinished is a queue that hardly moved.
    "gold": {"ttft_ms": 600_000, "priority": 0, "queue_timeout_s": 600},
    "silver": {"ttft_ms": 60_000, "priority": 10, "sheddable": True, "default": True},
    # The first in the queue behind four that take 25 s: its forecast, two turns at four in 25 s
    # at worst, lets it in.
    "hasty": {"priority": -10, "queue_timeout_s": 18},
}


def overloaded(model_path: Path, traces_port: int, **user_config: Any) -> dict[str, Any]:
    """One replica on an emulated accelerator, with three classes and a short queue."""
    app = application(
        "overload",
        model_path,
        deployment={"num_replicas": 1},
        batching={"policy": "static"},
        emulate={"profile": "paper-fig3", "kv_tokens": 8192},
        classes=OVERLOAD_CLASSES,
        admission={"max_waiting": WAITING, "shed_at": 1.0, "max_body_mb": 1},
    )
    app["args"]["llm_configs"][0]["engine_kwargs"] = {
        "max_num_seqs": SLOTS,
        "max_num_batched_tokens": 512,
        "max_model_len": 1024,
        "enable_prefix_caching": False,
        "otlp_traces_endpoint": f"http://127.0.0.1:{traces_port}/v1/traces",
    }
    app["args"]["llm_configs"][0]["runtime_env"]["env_vars"] |= SPANS_BY_HTTP
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
        deployment={"num_replicas": 1},
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


def emulated_applications(
    model_path: Path, port: int, traces_port: int, folder: Path
) -> list[dict[str, Any]]:
    """What is deployed.

    Args:
        port: of HAProxy.
        traces_port: where spans of ``overload`` go.
        folder: of the batch API.
    """
    app = application(
        "emulated",
        model_path,
        deployment={"num_replicas": 1},
        # An exchange is not slowed, so it is as much rarer; the replay has it at its own rate.
        batching={"policy": "adaptive", "exchange_hz": 1},
        emulate={"profile": PROFILE, "kv_tokens": KV_TOKENS, "time_scale": SCALE},
    )
    app["args"]["llm_configs"][0]["engine_kwargs"] = {
        **ENGINE.model_dump(exclude_none=True),
        "max_model_len": 512,
    }
    batched = batched_applications(model_path, port, folder)
    return [overloaded(model_path, traces_port), app, *batched, CONSOLE, left_alone(model_path)]
