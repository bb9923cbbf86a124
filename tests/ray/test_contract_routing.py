"""What of Ray 2.60's request routers is leaned on: a change fails here, by name."""

import asyncio
import inspect
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.llm._internal.serve.core.ingress.router import LLMRouter, _parse_routing_payload
from ray.llm._internal.serve.core.server.llm_server import LLMServer
from ray.serve._private.common import (
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
    RunningReplicaInfo,
)
from ray.serve._private.request_router.common import PendingRequest
from ray.serve._private.router import AsyncioRouter
from ray.serve.config import RequestRouterConfig

from controller.classes import parse_classes
from replicas.emulator.emulated_server import of_replica
from serve_app.routing.gather import end_of, ends_of
from serve_app.routing.prompt import ASKED_BY
from serve_app.routing.router import KEY_FIELDS, LLM_ROUTER, HeadroomRouter
from serve_app.routing.settings import CLASSES, parse_router, request_router_config

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


def test_direct_streaming_still_picks_a_replica_and_tells_the_router_nothing_more() -> None:
    assert '{"_reserve": False}' in inspect.getsource(LLMRouter._pick_replica)
    source = inspect.getsource(AsyncioRouter.choose_replica)
    unreserved = source[source.index("else:") : source.index("slot_token = None")]
    assert "self._active_request_router._choose_replicas_with_backoff(" in unreserved
    assert "(await candidates.__anext__())[0]" in unreserved
    assert "if not reserve:\n            yield selection\n            return" in source
    assert "on_send_request" not in source
    assert "on_request_routed" not in source
    assert source.index("on_request_completed") > source.index("if not reserve:")


def test_a_router_is_still_made_and_fed_as_here() -> None:
    source = inspect.getsource(AsyncioRouter.request_router.fget)
    assert "request_router.initialize_state(**(self._request_router_kwargs))" in source
    for key in ("deployment_id", "handle_source", "use_replica_queue_len_cache"):
        assert f"{key}=" in source
    update = inspect.getsource(AsyncioRouter.update_deployment_targets)
    assert "_update_running_replicas(running_replicas)" in update


def test_routing_stats_still_come_from_the_server_and_travel_with_the_replicas() -> None:
    assert inspect.iscoroutinefunction(LLMServer.record_routing_stats)
    assert "routing_stats" in RunningReplicaInfo.__dataclass_fields__


@pytest.mark.parametrize("policy", CLASSES)
def test_each_policy_is_a_router_of_ray_serves(policy: str) -> None:
    config = RequestRouterConfig(**request_router_config(parse_router({"policy": policy})))
    cls = config.get_request_router_class()
    name = CLASSES[policy].partition(":")[2]
    assert cls.__name__ == name


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


async def test_what_it_sent_counts_and_a_second_try_does_not_count_twice() -> None:
    made = fed("a", "b")
    taken = [await picked(made, pending(prompt="x" * 4000)) for _ in range(10)]
    assert sorted(taken) == ["a"] * 5 + ["b"] * 5
    candidates = made._choose_replicas_with_backoff(pending(prompt="x" * 4000))
    for _ in range(4):  # the best, the other, and after a pause the same again
        await candidates.__anext__()
    await candidates.aclose()
    assert sorted(known.requests for known in made._chooser._known.values()) == [5, 6]


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


def test_the_slow_replicas_of_an_emulated_fleet_are_the_first() -> None:
    emulate = {"time_scale": 2.0, "slow_replicas": 1, "slow_factor": 3.0}
    settings = {"emulate": emulate, "group": "g"}
    assert of_replica(settings, 1) is settings
    assert of_replica(settings, 0)["emulate"]["time_scale"] == 6.0
    assert emulate["time_scale"] == 2.0


async def test_a_prefix_stays_at_its_replica() -> None:
    made = fed(*"abcdef", prefix_affinity=True, prefix_chars=64)
    first = await picked(made, pending(prompt="x" * 1000))
    await asyncio.sleep(0.1)
    known = [Replica(one, now(prefill_tokens_per_s=1000.0)) for one in "abcdef"]
    made.update_replicas(known)  # type: ignore[arg-type]
    assert await picked(made, pending(prompt="x" * 990 + "y" * 200)) == first


CLASSES_OF = {"gold": (50.0, 2.0), "batch": (None, 600.0)}


@pytest.mark.parametrize("names", ["abc", "cab"])
async def test_classes_gather_at_the_ends_of_an_order_that_all_routers_share(names: str) -> None:
    made = fed(*names, gathered=CLASSES_OF)
    assert await picked(made, pending(prompt="a", service_tier="gold")) == "a"
    assert await picked(made, pending(prompt="a", service_tier="batch")) == "c"
    assert {await picked(made, pending(prompt="a")) for _ in range(40)} == set("abc")


async def test_replicas_of_one_adapter_are_in_the_order_of_all_too() -> None:
    names = [f"r{k:02}" for k in range(20)]

    async def of(tier: str) -> str:
        replicas = [Replica(name, now(), frozenset({"lora"})) for name in names]
        made = fed(*replicas, gathered=CLASSES_OF)
        request = pending(prompt="a river", max_tokens=4, service_tier=tier)
        request.metadata.multiplexed_model_id = "lora"
        return await picked(made, request)

    assert (await of("gold"), await of("batch")) == (names[0], names[-1])


def test_the_class_in_a_body_still_reaches_the_router() -> None:
    body = b'{"messages": [{"role": "user", "content": "a"}], "service_tier": "gold"}'
    end = end_of(_parse_routing_payload(body), ends_of(CLASSES_OF))
    assert end is not None and end.first
    assert end_of(_parse_routing_payload(body[:-20]), ends_of(CLASSES_OF)) is None  # cut off


def test_a_body_of_responses_reaches_the_router_once_there_is_one(monkeypatch) -> None:
    from ray.llm._internal.serve.core.ingress import router as rays

    source = inspect.getsource(LLMRouter.route)
    assert "routing_payload = _get_routing_payload_from_body(request_body)" in source
    monkeypatch.setattr(rays, KEY_FIELDS, ("messages", "prompt"))
    assert rays.__name__ == LLM_ROUTER
    body = b'{"input": "a river", "instructions": "be brief"}'
    assert _parse_routing_payload(body) is None
    router()
    router()
    assert _parse_routing_payload(body).input == "a river"
    assert getattr(rays, KEY_FIELDS) == ("messages", "prompt", "input")


async def test_a_turn_of_responses_follows_the_one_before() -> None:
    made = fed(*"abcdef", prefix_affinity=True, prefix_chars=64)
    asked = {"role": "user", "content": "x" * 1000}
    first = await picked(made, pending(input="x" * 1000, instructions="be brief"))
    await asyncio.sleep(0.1)
    known = [Replica(one, now(prefill_tokens_per_s=1000.0)) for one in "abcdef"]
    made.update_replicas(known)  # type: ignore[arg-type]
    answer = {"type": "message", "role": "assistant", "content": [{"text": "y" * 200}]}
    turn = pending(input=[asked, answer, asked], instructions="be brief")
    assert await picked(made, turn) == first


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


async def test_a_replica_does_not_load_from_itself_and_roles_of_all_are_no_reason_to_wait() -> None:
    made = router()
    made.update_replicas([Replica("p", room(time.time(), prefill=1))])
    assert await picked(made, pending(prompt="a" * 40)) == "p"
    itself = pending(prompt="a" * 40, kv_transfer_params={ASKED_BY: "p"})
    assert await made.choose_replicas([made._replicas[ReplicaID("p", DEPLOYMENT)]], itself) == []
    # Its role may have ended a moment ago: it computes the prompt all the same.
    made.update_replicas([Replica("p"), Replica("m")])
    assert await picked(made, itself) == "m"


async def test_an_adapter_that_is_loaded_elsewhere_changes_no_role() -> None:
    made = router()
    now_s = time.time()
    of_adapter = frozenset({"lora"})
    m, p = Replica("m", room(now_s)), Replica("p", room(now_s, prefill=1))

    async def of(first: Replica, second: Replica, **body: Any) -> str:
        made.update_replicas([first, second])  # type: ignore[arg-type]
        request = pending(prompt="a river", **body)
        request.metadata.multiplexed_model_id = "lora"
        return await picked(made, request)

    # It computed a prompt of that adapter; whoever answers clients loads it as well.
    assert await of(m, replace(p, multiplexed_model_ids=of_adapter)) == "m"
    asked = {"kv_transfer_params": {ASKED_BY: "m"}}
    assert await of(replace(m, multiplexed_model_ids=of_adapter), p, **asked) == "p"
    # Where no other engine is in that role any does it, and not after a second.
    with_it = replace(m, multiplexed_model_ids=of_adapter)
    assert await of(with_it, Replica("n", room(now_s)), **asked) == "n"
