"""One replica on an emulated accelerator, and the console beside it: for two modules of tests."""

from pathlib import Path
from typing import Any

from simulator.virtual.plan import EngineOptions
from tests.ray.applications import application

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


def emulated_applications(model_path: Path) -> list[dict[str, Any]]:
    """What is deployed."""
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
    return [app, CONSOLE]
