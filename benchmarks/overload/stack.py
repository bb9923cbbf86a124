"""An emulated fleet for the overload bench: with classes, as Ray ships it, with vLLM's limits."""

import contextlib
from collections.abc import Iterator
from typing import Any

from benchmarks.live.emulated import emulated_application
from benchmarks.live.fleet import Deployed, cluster_at
from benchmarks.overload.shapes import CLASSES, PROFILE, REPLICAS, SLOTS, STEP_TOKENS, TIME_SCALE

PORT, MODEL = 8126, "overload"
URL = f"http://127.0.0.1:{PORT}/v1"
DEPLOY_TIMEOUT_S = 420
VARIANTS = {
    "brimful": "classes and admission",
    "defaults": "Ray Serve LLM as shipped: no limit on the queue",
    "vllm_limits": "vLLM's max_num_queued_reqs at three times the slots",
}


def application(variant: str) -> dict[str, Any]:
    """The fleet under one of ``VARIANTS``; clients send the same requests to all."""
    engine: dict[str, Any] = {
        "max_num_seqs": SLOTS,
        "max_num_batched_tokens": STEP_TOKENS,
        "max_model_len": 1024,
    }
    if variant == "vllm_limits":
        engine["max_num_queued_reqs"] = 3 * SLOTS
    blocks: dict[str, Any] = {"classes": CLASSES} if variant == "brimful" else {}
    made = emulated_application(
        MODEL,
        engine=engine,
        deployment={"num_replicas": REPLICAS},
        emulate={"profile": PROFILE, "kv_tokens": 20_000, "time_scale": TIME_SCALE},
        batching={"policy": "static"},
        **blocks,
    )
    if variant != "brimful":  # Ray's own limit
        (entry,) = made["args"]["llm_configs"]
        del entry["deployment_config"]["max_ongoing_requests"]
    return made


@contextlib.contextmanager
def fleet() -> Iterator[Deployed]:
    """A cluster for a ``with`` block."""
    with cluster_at(PORT) as (cluster, directory):
        yield Deployed(cluster, directory, PORT)
