"""The way of a request over more and more emulated replicas: what each process takes of the CPU."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import yaml

from benchmarks.live.emulated import emulated_application
from benchmarks.report.document import ROOT
from benchmarks.startup.measure import first_tokens
from benchmarks.startup.processes import cpu_by_kind
from controller.errors import BrimfulError
from serve_app.demo.client import Ask, send
from serve_app.demo.cluster import LocalCluster, local_cluster
from serve_app.demo.machine import client_wait_s

PORT = 8127
# HAProxy's two others, fixed by default: another cluster on this machine may have them.
ENVIRONMENT = {
    "RAY_SERVE_HAPROXY_METRICS_PORT": "9127",
    "RAY_SERVE_HAPROXY_STATS_PORT": "8427",
}
MODEL = "scaled"
URL = f"http://127.0.0.1:{PORT}/v1"
SERVER = "EmulatedServer:"
PROFILE = "paper-fig3"  # 27 ms a step and 0.23 ms for each running request
STREAMS = 16  # per replica, of the load of long answers
ANSWER_TOKENS = 256
SHORT_STREAMS = 32  # of the load of answers of one token, over all replicas
SHORT_S = 8.0
IDLE_S = 6.0
DEPLOY_TIMEOUT_S = 420
CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Load:
    """What one load did.

    Args:
        seconds: it lasted.
        requests: that were answered whole.
        tokens: in their answers.
        cpu_s: by kind of process; the client's too.
        waited_frac: share of the time in which the client was ready and had no core.
    """

    seconds: float
    requests: int
    tokens: int
    cpu_s: dict[str, float]
    waited_frac: float

    @property
    def server_cpu_s(self) -> float:
        """Of all but the client."""
        return sum(seconds for kind, seconds in self.cpu_s.items() if kind != CLIENT)


@dataclass(frozen=True, slots=True)
class Scale:
    """Both loads, and none, on so many replicas.

    Args:
        long_answers: tokens stream from all replicas at the pace of their steps.
        short_answers: one token each, as many requests as get through.
        idle: CPU seconds by kind while nothing is asked, and over how many seconds.
    """

    replicas: int
    long_answers: Load
    short_answers: Load
    idle: tuple[dict[str, float], float]


def scales(replicas: Sequence[int]) -> Iterator[Scale]:
    """One cluster, whose application gets more replicas from step to step.

    Raises:
        BrimfulError: something did not come up, or requests were not served.
    """
    with (
        tempfile.TemporaryDirectory(prefix="brimful-scale-") as folder,
        local_cluster(ENVIRONMENT, directory=ROOT, logs=Path(folder)) as cluster,
    ):
        for number in replicas:
            _deploy(cluster, number, Path(folder))
            first_tokens(URL, MODEL, streams=2 * number)
            asyncio.run(_short(2.0))  # the first requests after a start are slow
            time.sleep(2.0)
            idle = _idle()
            long_answers = _long(number)
            before = _Meter()
            count = asyncio.run(_short(SHORT_S))
            yield Scale(number, long_answers, before.load(count, count), idle)


def _deploy(cluster: LocalCluster, replicas: int, folder: Path) -> None:
    app = emulated_application(
        MODEL,
        engine={"max_num_seqs": 256, "max_num_batched_tokens": 2048, "max_model_len": 2048},
        # Without a number Ray Serve LLM has one replica scale by itself, and keeps it at one.
        deployment={"num_replicas": 1},
        router={},  # also with one replica, where HAProxy would choose by itself
        emulate={"profile": PROFILE, "kv_tokens": 60_000},
        bundle={"CPU": 0.1},
        batching={"policy": "adaptive", "sla": {"itl_ms": 50}},
    )
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": PORT},
        # Not in the arguments: other arguments would make all replicas anew.
        "applications": [
            {**app, "deployments": [{"name": f"{SERVER}{MODEL}", "num_replicas": replicas}]}
        ],
    }
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    cluster.deploy(path)
    until_s = time.monotonic() + DEPLOY_TIMEOUT_S
    while _running(cluster) != replicas:  # until the new ones are there, all is still as it was
        if time.monotonic() > until_s:
            raise BrimfulError(f"{replicas} replicas did not come up within {DEPLOY_TIMEOUT_S} s")
        time.sleep(0.5)
    cluster.wait_running(DEPLOY_TIMEOUT_S, lambda now: print(now, file=sys.stderr))


def _running(cluster: LocalCluster) -> int:
    app = cluster.applications().get(MODEL, {"deployments": {}})
    return sum(
        replica["state"] == "RUNNING"
        for name, deployment in app["deployments"].items()
        if name.startswith(SERVER)
        for replica in deployment["replicas"]
    )


def _long(replicas: int) -> Load:
    asks = [Ask([3 + i % 200] * 32, ANSWER_TOKENS) for i in range(STREAMS * replicas)]
    before = _Meter()
    answers = asyncio.run(send(URL, MODEL, asks))
    whole = [answer for answer in answers if answer.whole]
    if len(whole) < len(asks):
        raise BrimfulError(f"{len(asks) - len(whole)} of {len(asks)} requests were not served")
    return before.load(len(whole), sum(answer.tokens for answer in whole))


async def _short(seconds: float) -> int:
    """Requests of one token, each stream's next as soon as its last is answered; how many."""
    body = {"model": MODEL, "prompt": [3, 4, 5], "max_tokens": 1, "temperature": 0}
    until_s, done = time.perf_counter() + seconds, 0

    async def stream(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while time.perf_counter() < until_s:
            async with session.post(f"{URL}/completions", json=body) as answer:
                if answer.status != 200:
                    raise BrimfulError(f"a request got {answer.status}: {await answer.text()}")
                await answer.read()
                done += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(stream(session) for _ in range(SHORT_STREAMS)))
    return done


def _idle() -> tuple[dict[str, float], float]:
    before = _Meter()
    time.sleep(IDLE_S)
    load = before.load(0, 0)
    load.cpu_s.pop(CLIENT)
    return load.cpu_s, load.seconds


class _Meter:
    """Counts from when it is made."""

    def __init__(self) -> None:
        self._begin = self._now()

    def load(self, requests: int, tokens: int) -> Load:
        begin, end = self._begin, self._now()
        seconds = end[0] - begin[0]
        spent = {kind: total - begin[1].get(kind, 0.0) for kind, total in end[1].items()}
        return Load(seconds, requests, tokens, spent, (end[2] - begin[2]) / seconds)

    @staticmethod
    def _now() -> tuple[float, dict[str, float], float]:
        own = psutil.Process().cpu_times()
        spent = cpu_by_kind(os.getpid()) | {CLIENT: own.user + own.system}
        return time.perf_counter(), spent, client_wait_s() or 0.0
