"""The head's node is lost, what it knew is in Redis: nobody served by a worker notices."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve_app.demo.client import Ask, prompts, send
from serve_app.environment import ON_CPU
from serve_app.launch.command import Clock
from serve_app.launch.local_cluster import AUTH_MODE
from serve_app.launch.running import wait_reached
from tests.ray.applications import application
from tests.ray.control import replica_actors, until
from tests.ray.pods import Pods, containers_of, environment_of, redis

pytestmark = [pytest.mark.cluster, pytest.mark.redis, pytest.mark.pods]

LEASE_S = 3.0
CAP = 6  # of max_running; the engine's own limit is 48
ENGINE = {"max_num_seqs": 48, "max_num_batched_tokens": 512, "max_model_len": 1024}
MODEL = "tiny-lasting"


def lasting(model_path: Path) -> dict[str, Any]:
    """Two replicas on emulated accelerators; a token takes some 80 ms."""
    app = application(
        "lasting",
        model_path,
        deployment={"num_replicas": 2},
        batching={
            "policy": "adaptive",
            "exchange_hz": 1,
            "lease_s": LEASE_S,
            "max_running": {"max": CAP},
        },
        emulate={"profile": "paper-fig3", "kv_tokens": 10240, "time_scale": 3},
    )
    entry = app["args"]["llm_configs"][0]
    entry["engine_kwargs"] = {**ENGINE, "block_size": 32}
    return app


def load(n: int, tokens: int, seed: int) -> list[Ask]:
    return [Ask(p, tokens) for p in prompts(n, (8, 20), seed=seed)]


def brimful(pods: Pods, *argv: str) -> dict[str, Any]:
    """What a ``brimful`` command says in JSON; nothing where it failed."""
    command = [sys.executable, "-m", "serve_app.cli", *argv, "--json"]
    done = subprocess.run(
        [*command, "--address", pods.gcs_address],
        env={**os.environ, AUTH_MODE: "disabled"},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.stdout else {}


def limits(pods: Pods) -> dict[str, tuple[int, str]]:
    """The cap of each replica that reports, and whether it is applied."""
    told = brimful(pods, "status").get("replicas", ())
    return {r["replica"]: (r["max_running"], r["control"]) for r in told if not r["late"]}


def models(pods: Pods) -> dict[str, int]:
    """Process ids of the model's replicas, by Ray Serve's ids."""
    found = replica_actors(pods.applications(), "lasting")
    return {replica: told["pid"] for replica, told in found.items()}


def on_head(pods: Pods, actor: str) -> list[bool]:
    """Whether each living actor of this class is on the head."""
    (head,) = [one["node_id"] for one in pods.state("nodes") if one["is_head_node"]]
    found = [one for one in pods.state("actors") if actor in one["class_name"]]
    return [one["node_id"] == head for one in found]


async def answered(base: str, seed: int) -> list[str | int]:
    """What became of a dozen short requests."""
    return [a.error or a.status for a in await send(base, MODEL, load(12, 40, seed))]


async def test_streams_switches_and_caps_outlast_the_head(tmp_path: Path, model_path: Path) -> None:
    clock, (_, container) = Clock(), containers_of("ha")
    with redis(tmp_path) as address:
        environment = {**environment_of(container, tmp_path), "RAY_REDIS_ADDRESS": address}
        pods = Pods(tmp_path, {**environment, **ON_CPU})
        with pods.running():
            worker = pods.start_worker("--num-cpus=4")
            base = f"http://127.0.0.1:{worker.port}/lasting/v1"
            pods.deploy(
                {
                    "proxy_location": "EveryNode",
                    "http_options": {"host": "127.0.0.1", "port": pods.head_port},
                    "applications": [lasting(model_path)],
                }
            )
            await _lose_the_head(pods, base, clock)


async def _lose_the_head(pods: Pods, base: str, clock: Clock) -> None:
    await asyncio.to_thread(pods.wait_running)
    await asyncio.to_thread(wait_reached, base)
    await until("both replicas' reports", lambda: len(limits(pods)) == 2)
    assert brimful(pods, "enforce", "off", "--wait", "60")["confirmed"]
    before, running = limits(pods), models(pods)
    assert set(before.values()) == {(CAP, "off")}
    assert on_head(pods, "EmulatedServer") == [False, False]
    assert on_head(pods, "BatchController") == [True]
    assert sorted(on_head(pods, "HAProxyManager")) == [False, True]

    streams = asyncio.create_task(send(base, MODEL, load(12, 600, seed=1)))
    await asyncio.sleep(1)
    await asyncio.to_thread(pods.head.kill)
    clock.say("the head is killed")
    assert await answered(base, seed=2) == [200] * 12
    await asyncio.sleep(2 * LEASE_S)
    assert await answered(base, seed=3) == [200] * 12
    clock.say("24 requests were answered without it; another head starts")
    await asyncio.to_thread(pods.start_head)
    clock.say("its REST interface answers")
    await asyncio.to_thread(pods.wait_running)
    clock.say("Ray Serve's controller is back, and has all replicas")
    assert await answered(base, seed=4) == [200] * 12
    await until("caps and switches", lambda: limits(pods) == before, tries=300)
    clock.say("the batch controller is back, with the same caps and switches")
    assert [(a.error or a.status, a.tokens) for a in await streams] == [(200, 600)] * 12
    clock.say("streams that had begun before have ended, whole")
    assert models(pods) == running
    assert on_head(pods, "BatchController") == [True]
    assert brimful(pods, "enforce", "on", "--wait", "60")["confirmed"]
    assert set(limits(pods).values()) == {(CAP, "on")}
