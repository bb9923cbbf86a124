"""The head's node is lost, what it knew is in Redis: nobody served by a worker notices."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from serve_app.demo.client import Ask, prompts, send
from serve_app.launch.running import settled, wait_reached
from tests.ray.applications import application
from tests.ray.control import until
from tests.ray.two_nodes import TwoNodes

say = print

pytestmark = [pytest.mark.cluster, pytest.mark.redis]

CAP = 6  # of max_running; the engine's own limit is 48
ENGINE = {"max_num_seqs": 48, "max_num_batched_tokens": 512, "max_model_len": 1024}
MODEL = "tiny-lasting"


def lasting(model_path: Path) -> dict[str, Any]:
    """Two replicas on emulated accelerators; a token takes some 80 ms."""
    app = application(
        "lasting",
        model_path,
        deployment={"num_replicas": 2},
        batching={"policy": "adaptive", "exchange_hz": 1, "max_running": {"max": CAP}},
        emulate={"profile": "paper-fig3", "kv_tokens": 10240, "time_scale": 3},
    )
    entry = app["args"]["llm_configs"][0]
    entry["engine_kwargs"] = {**ENGINE, "block_size": 32}
    return app


def load(n: int, tokens: int, seed: int) -> list[Ask]:
    return [Ask(p, tokens) for p in prompts(n, (8, 20), seed=seed)]


def brimful(nodes: TwoNodes, *argv: str) -> dict[str, Any]:
    """What a ``brimful`` command says in JSON; nothing where it failed."""
    command = [sys.executable, "-m", "serve_app.cli", *argv, "--json"]
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    done = subprocess.run(
        [*command, "--address", nodes.gcs_address], capture_output=True, text=True, env=env
    )
    say(argv, done.returncode, done.stdout[-600:], done.stderr[-600:])
    return json.loads(done.stdout) if done.stdout else {}


def replicas(nodes: TwoNodes) -> dict[str, int]:
    """Process ids of all replicas that run, by Ray Serve's ids."""
    return {
        one["replica_id"]: one["pid"]
        for app in nodes.serve()["applications"].values()
        for deployment in app["deployments"].values()
        for one in deployment["replicas"]
        if one["state"] == "RUNNING"
    }


def up(nodes: TwoNodes) -> bool:
    apps = nodes.serve()["applications"]
    return bool(apps) and all(map(settled, apps.values()))


def limits(nodes: TwoNodes) -> dict[str, tuple[int, str]]:
    """The cap of each replica, and whether it is applied, of those that have reported lately."""
    return {
        one["replica"]: (one["max_running"], one["control"])
        for one in brimful(nodes, "status").get("replicas", ())
        if not one["late"]
    }


async def test_streams_switches_and_caps_outlast_the_head(tmp_path: Path, model_path: Path) -> None:
    nodes = TwoNodes(tmp_path, worker_cpus=4)
    base = f"{nodes.base_url}/lasting/v1"
    with nodes.running():
        nodes.deploy(lasting(model_path))
        await until("a running application", lambda: up(nodes), tries=3000, seen=nodes.serve)
        await asyncio.to_thread(wait_reached, base)
        await until("both replicas' reports", lambda: len(limits(nodes)) == 2)
        assert brimful(nodes, "enforce", "off", "--wait", "60")["confirmed"]
        before, running = limits(nodes), replicas(nodes)
        assert set(before.values()) == {(CAP, "off")}
        say({a["class_name"]: (a["node_id"], a["name"]) for a in nodes.state("actors")})
        say([(n["node_id"], n["is_head_node"], n["state"]) for n in nodes.state("nodes")])
        streams = asyncio.create_task(send(base, MODEL, load(12, 600, seed=1)))
        await asyncio.sleep(5)
        lost_s = time.monotonic()
        await asyncio.to_thread(nodes.head.kill)
        answers = await send(base, MODEL, load(12, 40, seed=2))
        say("without a head:", [a.error or a.status for a in answers])
        say(f"{time.monotonic() - lost_s:.0f} s without a head")
        began_s = time.monotonic()
        await asyncio.to_thread(nodes.start_head)
        say(f"REST interface: {time.monotonic() - began_s:.0f} s after the start")
        await until("Ray Serve's controller", lambda: up(nodes), tries=3000, seen=nodes.serve)
        say(f"Serve: {time.monotonic() - began_s:.0f} s after the start")
        answers = await send(base, MODEL, load(12, 40, seed=3))
        say(f"answers: {time.monotonic() - began_s:.0f} s after the start")
        say("with a new head:", [a.error or a.status for a in answers])
        await until("both replicas' reports", lambda: limits(nodes) == before, tries=300)
        say(f"limits: {time.monotonic() - began_s:.0f} s after the start")
        answers = await streams
        say("streams:", [(a.error or a.status, a.tokens, a.total_s) for a in answers])
        assert replicas(nodes) == running
        say(
            {a["class_name"]: (a["node_id"], a["name"], a["state"]) for a in nodes.state("actors")}
        )
        say([(n["node_id"], n["is_head_node"], n["state"]) for n in nodes.state("nodes")])
        assert brimful(nodes, "enforce", "on", "--wait", "60")["confirmed"]
        assert set(limits(nodes).values()) == {(CAP, "on")}
