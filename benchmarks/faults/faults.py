"""The faults: each happens once to a fleet under load, which has to recover."""

import asyncio
import contextlib
import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import ray

from benchmarks.faults.client import Counts, Load, count
from benchmarks.faults.stack import (
    MODEL,
    PER_NODE,
    PORT,
    ROUTER,
    SERVER,
    SLOTS,
    URL,
    FaultsError,
    Fleet,
    application,
    fleet,
    reports,
)
from controller.fleet.actor import find_controller

RATE_PER_S, BURST_PER_S = 8.0, 16.0
BEFORE_S, AFTER_S = 4.0, 14.0  # of load, before and after a fault
UNTIL_RAY_NOTICES_S = 70.0  # Ray replaces HAProxy half a minute after its end
DISCONNECTS, TOGETHER = 10_000, 60
STAYS_S = 0.25  # clients leave at a random time within this
IDLE_S = 60.0
CONTROLLER, NAMESPACE = "SERVE_CONTROLLER_ACTOR", "serve"

Do = Callable[[Fleet], None]


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of one fault.

    Args:
        whole_after_s: from the fault until the fleet has recovered.
        left: resources still held after the clients had gone, by kind.
    """

    counts: Counts
    whole_after_s: float
    left: dict[str, int]


def replica(there: Fleet) -> None:
    _kill(psutil.Process(_one(there.replicas(SERVER))))


def engine(there: Fleet) -> None:
    children = psutil.Process(_one(there.replicas(SERVER))).children(recursive=True)
    _kill(next(c for c in children if "EngineCor" in " ".join([c.name(), *c.cmdline()])))


def controller(there: Fleet) -> None:
    ray.kill(find_controller(), no_restart=False)


def haproxy(there: Fleet) -> None:
    for process in there.processes("bin/haproxy -db"):
        _kill(process)


def router(there: Fleet) -> None:
    _kill(psutil.Process(_one(there.replicas(ROUTER))))


def serve_controller(there: Fleet) -> None:
    ray.kill(ray.get_actor(CONTROLLER, namespace=NAMESPACE), no_restart=False)


def redeploy(there: Fleet) -> None:
    """Another version of the code, as Ray Serve sees it: every replica is replaced."""
    before = set(there.replicas(SERVER))
    there.deploy(application(SLOTS - 1))
    until_s = time.monotonic() + IDLE_S
    while before & set(there.replicas(SERVER)) == before and time.monotonic() < until_s:
        time.sleep(0.5)
    there.wait_whole()


KILLS: dict[str, tuple[str, Do]] = {
    "replica": ("a replica's process killed (-9)", replica),
    "engine": ("an EngineCore killed (-9)", engine),
    "controller": ("the batch controller's actor killed", controller),
    "haproxy": ("HAProxy killed (-9)", haproxy),
    "router": ("the router's replica killed (-9)", router),
    "serve_controller": ("Ray Serve's controller killed", serve_controller),
    "redeploy": ("all replaced by another version, during a burst", redeploy),
}
DISCONNECT, NODE = "disconnects", "node"
WHAT = {name: what for name, (what, _) in KILLS.items()} | {
    DISCONNECT: f"{DISCONNECTS:,} clients that leave, {TOGETHER} at a time",
    NODE: "one of two nodes removed (-9)",
}


def run(there: Fleet, do: Do) -> Found:
    """The outcome of a fault under a steady load."""
    there.wait_whole()
    per_s = BURST_PER_S if do is redeploy else RATE_PER_S

    async def under_load() -> tuple[Counts, float]:
        load = Load(URL, MODEL, per_s)
        running = asyncio.create_task(load.run())
        await asyncio.sleep(BEFORE_S)
        at_s = time.perf_counter()
        await asyncio.to_thread(do, there)
        await asyncio.sleep(UNTIL_RAY_NOTICES_S if do is haproxy else AFTER_S)
        load.stop()
        return count(await running), at_s

    counts, at_s = asyncio.run(under_load())
    there.wait_whole()
    return Found(counts, time.perf_counter() - at_s, {})


def disconnects(there: Fleet) -> Found:
    """Clients that leave before their answer's end, next to a steady load."""
    there.wait_whole()

    async def leave() -> Counts:
        load = Load(URL, MODEL, RATE_PER_S / 2)
        running = asyncio.create_task(load.run())
        slots, rng = asyncio.Semaphore(TOGETHER), random.Random(0)

        async def one() -> None:
            async with slots:
                await asked_and_gone(rng.random() * STAYS_S, stream=rng.random() < 0.5)

        await asyncio.gather(*(one() for _ in range(DISCONNECTS)))
        load.stop()
        return count(await running)

    counts = asyncio.run(leave())
    at_s = time.perf_counter()
    left = _left(there)
    while any(left.values()) and time.perf_counter() < at_s + IDLE_S:
        time.sleep(1)
        left = _left(there)
    return Found(counts, time.perf_counter() - at_s, left)


async def asked_and_gone(stays_s: float, *, stream: bool) -> None:
    """A client that asks for a long answer and leaves."""
    asked = {"model": MODEL, "prompt": "a river", "max_tokens": 900, "stream": stream}
    body = json.dumps(asked)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}"
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", PORT)
        writer.write(f"{head}\r\nContent-Type: application/json\r\n\r\n{body}".encode())
        await asyncio.sleep(stays_s)
        writer.transport.abort()


def _left(there: Fleet) -> dict[str, int]:
    """Resources that an idle fleet does not hold."""
    known = reports()
    return {
        "requests in engines": sum(r.running + r.waiting for r in known),
        "KV tokens": sum(r.kv_used_tokens for r in known),
        "requests that admission waits for": there.without_first_token(),
        "connections": there.connections(),
    }


@contextlib.contextmanager
def second_node(there: Fleet) -> Iterator[psutil.Process]:
    """A second Ray node on this machine; its raylet's parent."""
    command = ["ray", "start", f"--address={there.cluster.gcs_address}", "--block", "--num-cpus=4"]
    command += ["--disable-usage-stats", "--dashboard-agent-listen-port=0"]
    command += [f'--resources={{"{PER_NODE}": 1}}']
    environment = {k: v for k, v in there.cluster.environment.items() if k != "RAY_ADDRESS"}
    started = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        process_group=0,
    )  # fmt: skip
    node = psutil.Process(started.pid)
    try:
        yield node
    finally:
        remove(node)
        started.wait()


def remove(node: psutil.Process) -> None:
    """Kill a node's processes, all at once."""
    with contextlib.suppress(psutil.Error):
        for process in [node, *node.children(recursive=True)]:
            _kill(process)


def node_removed() -> Found:
    """Two nodes with a replica each; the one without HAProxy and Serve's controller is killed."""
    with (
        fleet(application(bundle={PER_NODE: 1}), {PER_NODE: 1}) as there,
        second_node(there) as node,
    ):
        there.wait_whole()

        async def under_load() -> Counts:
            load = Load(URL, MODEL, RATE_PER_S)
            running = asyncio.create_task(load.run())
            await asyncio.sleep(BEFORE_S)
            remove(node)
            await asyncio.sleep(AFTER_S)
            load.stop()
            return count(await running)

        return Found(asyncio.run(under_load()), float("nan"), {})


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def _one(replicas: dict[str, int]) -> int:
    if not replicas:
        raise FaultsError("no such replica runs")
    return replicas[min(replicas)]
