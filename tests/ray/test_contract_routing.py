"""What of Ray 2.60's request routers is leaned on: a change fails here, by name."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ray.serve._private.common import (
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
)
from ray.serve._private.request_router.common import PendingRequest
from ray.serve.config import RequestRouterConfig

from controller.classes import parse_classes
from serve_app.routing.prompt import ASKED_BY
from serve_app.routing.router import HeadroomRouter
from serve_app.routing.settings import parse_router, request_router_config

DEPLOYMENT = DeploymentID("llm", "app")


@dataclass
class Replica:
    """The part of Ray's ``RunningReplica`` that routers use; no actor stands behind it."""

    name: str
    routing_stats: dict[str, Any] = field(default_factory=dict)
    multiplexed_model_ids: frozenset[str] = frozenset()
    node_id: str = "node"
    availability_zone: str | None = None

    @property
    def replica_id(self) -> ReplicaID:
        return ReplicaID(self.name, DEPLOYMENT)

    async def get_queue_len(self, *, deadline_s: float) -> int:
        return 0


def room(taken_s: float, **fields: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("running", "waiting", "prompt_backlog_tokens", "arrivals"), 0)
    limits = {"taken_unix_s": taken_s, "max_running": 8, "kv_free_tokens": 10**6}
    return {"brimful": {**counts, **limits, **fields}}


def router(cls: type[HeadroomRouter] = HeadroomRouter, **kwargs: Any) -> HeadroomRouter:
    """As Ray Serve makes it: see ``AsyncioRouter.request_router``."""
    made = cls(
        deployment_id=DEPLOYMENT,
        handle_source=DeploymentHandleSource.REPLICA,
        self_node_id="node",
        self_actor_id="actor",
        self_actor_handle=None,
        use_replica_queue_len_cache=True,
        create_replica_wrapper_func=lambda info: info,
        prefer_local_node_routing=False,
        prefer_local_az_routing=False,
        self_availability_zone=None,
        initial_backoff_s=0.01,
        backoff_multiplier=2.0,
        max_backoff_s=0.1,
    )
    made.initialize_state(**kwargs)
    return made


def fed(*replicas: Replica | str, **kwargs: Any) -> HeadroomRouter:
    """A router that knows these replicas; a name: one with room for all."""
    made = router(**kwargs)
    now_s = made._get_curr_time_s()
    known = [Replica(one, room(now_s)) if isinstance(one, str) else one for one in replicas]
    made.update_replicas(known)  # type: ignore[arg-type]
    return made


def now(**fields: Any) -> dict[str, Any]:
    return room(time.time(), **fields)


def pending(**body: Any) -> PendingRequest:
    """What ``LLMRouter`` hands on: the parsed body, or nothing."""
    args = [SimpleNamespace(**body)] if body else []
    metadata = RequestMetadata(request_id="r", internal_request_id="i")
    return PendingRequest(args=args, kwargs={}, metadata=metadata)


async def picked(made: HeadroomRouter, request: PendingRequest) -> str:
    """As ``AsyncioRouter.choose_replica`` picks without a reservation."""
    candidates = made._choose_replicas_with_backoff(request)
    replica = (await candidates.__anext__())[0]
    await candidates.aclose()
    return replica.name


async def test_it_routes_by_the_room_that_replicas_publish() -> None:
    made = router()
    now_s = made._get_curr_time_s()
    full, empty = Replica("full", room(now_s, running=8, waiting=30)), Replica("empty", room(now_s))
    made.update_replicas([full, empty])  # type: ignore[list-item]
    for _ in range(5):
        assert await picked(made, pending(prompt="a river", max_tokens=4)) == "empty"
    assert made.outcomes == {"room": 5}
    # Newer figures of the same replicas.
    full.routing_stats, empty.routing_stats = room(now_s + 0.1), room(now_s + 0.1, waiting=60)
    made.update_replicas([full, empty])  # type: ignore[list-item]
    assert await picked(made, pending()) == "full"


async def test_a_replica_that_died_is_not_offered() -> None:
    made = fed("gone", Replica("left", now(waiting=50)))
    made.on_replica_actor_died(ReplicaID("gone", DEPLOYMENT))
    assert await picked(made, pending(prompt="a")) == "left"


async def test_an_adapter_goes_to_a_replica_that_has_it() -> None:
    made = fed(Replica("with", multiplexed_model_ids=frozenset({"lora"})), Replica("without"))
    for _ in range(4):
        request = pending(prompt="a")
        request.metadata.multiplexed_model_id = "lora"
        assert await picked(made, request) == "with"


def test_it_travels_by_value_to_a_process_without_this_project(tmp_path: Path) -> None:
    gathering = parse_router({"gather_classes": True})
    classes = parse_classes({"gold": {"itl_ms": 50}, "batch": {"default": True}})
    config = RequestRouterConfig(**request_router_config(gathering, classes))
    pickled = tmp_path / "router"
    pickled.write_bytes(config.get_serialized_request_router_cls() or b"")
    script = (
        "import sys; sys.modules['serve_app'] = sys.modules['controller'] = None\n"
        "from ray import cloudpickle\n"
        f"cls = cloudpickle.loads(open({str(pickled)!r}, 'rb').read())\n"
        "from ray.serve._private.common import DeploymentHandleSource, DeploymentID\n"
        "made = cls(DeploymentID('d', 'a'), DeploymentHandleSource.PROXY)\n"
        f"made.initialize_state(**{config.request_router_kwargs!r})\n"
        "from types import SimpleNamespace as N\n"
        "asked, prefix, end = made._read(N(args=[N(prompt='x' * 2000, service_tier='gold')]))\n"
        "assert asked.prompt_tokens == 500 and end.first\n"
        "assert made._chooser.choose(['a', 'b'], asked, 0.0).replica in 'ab'\n"
        "assert 'vllm' not in sys.modules and 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


async def test_prefill_engines_get_prompts_of_other_replicas_and_no_client() -> None:
    made = router()
    now_s = time.time()
    replicas = [Replica("m", room(now_s, running=7)), Replica("p", room(now_s, prefill=1))]
    made.update_replicas(replicas)
    whole = {await picked(made, pending(prompt="a" * 40)) for _ in range(8)}
    assert whole == {"m"}  # however full it is
    prompt = pending(prompt="a" * 40, kv_transfer_params={ASKED_BY: "m"})
    assert {await picked(made, prompt) for _ in range(8)} == {"p"}
