"""The trial on this machine: emulated replicas behind HAProxy that Ray Serve starts and stops."""

import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np
import psutil
import ray
import requests
import yaml

from benchmarks.fleet.counts import Counts, starts_s
from benchmarks.fleet.trial import MAX_MODEL_LEN, MODEL, Starts, Trial
from benchmarks.report.document import ROOT
from controller.errors import BrimfulError
from serve_app.demo.client import Answer, Ask, send
from serve_app.demo.cluster import LocalCluster, local_cluster, wait_reached
from serve_app.demo.machine import Machine
from serve_app.demo.tiny_model import VOCAB
from serve_app.scaling_export import read_told
from simulator.fleet.traffic import Requests

PORT = 8129
URL = f"http://127.0.0.1:{PORT}/v1"
# HAProxy's two others, fixed by default: another cluster on this machine may have them.
ENVIRONMENT = {
    "RAY_SERVE_HAPROXY_METRICS_PORT": "9129",
    "RAY_SERVE_HAPROXY_STATS_PORT": "8429",
}
DEPLOYMENT = f"EmulatedServer:{MODEL}"
CPUS = 8  # that Ray is told of: four replicas and all around them ask for less
DEPLOY_TIMEOUT_S = 300
EVERY_S = 1.0  # between two looks at Ray Serve's status
AFTER_S = 120.0  # after the last arrival, to end what runs
LONGEST = MAX_MODEL_LEN // 2  # tokens of an answer that clients allow


class TrialError(BrimfulError):
    """The real run did not come to what is compared."""


@dataclass(frozen=True, slots=True)
class Look:
    """Replicas at one moment, by Ray Serve's status; seconds since the first request could come."""

    at_s: float
    target: int
    starting: int
    running: int
    stopping: int


@dataclass(frozen=True, slots=True)
class Said:
    """A decision of the policy; seconds as in ``Look``, rates in requests/s."""

    at_s: float
    desired: int
    demand_per_s: float
    capacity_per_s: float | None
    start_s: float
    words: str


@dataclass(frozen=True, slots=True)
class Served:
    """What the client saw of one request; seconds, None where it never came."""

    status: int
    whole: bool
    ttft_s: float | None
    itl_s: float
    total_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Real:
    """One real run.

    Args:
        looks: from the deployment's first on, so some are before 0.
        waited_frac: share of the time in which the client had work and no core; None: not known.
        others_cores: that other programs took meanwhile.
    """

    looks: tuple[Look, ...]
    said: tuple[Said, ...]
    served: tuple[Served, ...]
    waited_frac: float | None
    others_cores: float

    @property
    def target(self) -> Counts:
        return Counts.of((look.at_s, look.target) for look in self.looks)

    @property
    def running(self) -> Counts:
        """Replicas that take requests."""
        return Counts.of((look.at_s, look.running) for look in self.looks)

    @property
    def paid(self) -> Counts:
        """Replicas that start, run or drain."""
        return Counts.of((k.at_s, k.starting + k.running + k.stopping) for k in self.looks)

    def starts(self) -> Starts:
        """How long replicas took to start.

        Raises:
            TrialError: no replica was added.
        """
        first_s, *later_s = starts_s(self.target, self.running) or [0.0]
        if not later_s:
            raise TrialError("Ray Serve added no replica, so no start was measured")
        return Starts(-self.looks[0].at_s, first_s, float(np.mean(later_s)))

    def write(self, path: Path) -> None:
        """Keep it, as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Real":
        """What ``write`` kept.

        Raises:
            TrialError: nothing was.
        """
        try:
            kept = json.loads(path.read_text())
        except FileNotFoundError:
            raise TrialError(f"{path}: no real run was kept; leave --kept out") from None
        return cls(
            tuple(Look(**one) for one in kept["looks"]),
            tuple(Said(**one) for one in kept["said"]),
            tuple(Served(**one) for one in kept["served"]),
            kept["waited_frac"],
            kept["others_cores"],
        )


class Watch:
    """Looks at Ray Serve's status once a second while a ``with`` block runs, in its own thread."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self._over = cluster, threading.Event()
        self._looks: list[Look] = []
        self._said: dict[float, Said] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def since(self, begin_unix_s: float) -> tuple[tuple[Look, ...], tuple[Said, ...]]:
        """What was seen, in seconds from then."""
        looks = (replace(one, at_s=one.at_s - begin_unix_s) for one in self._looks)
        said = (replace(one, at_s=one.at_s - begin_unix_s) for one in self._said.values())
        return tuple(looks), tuple(said)

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            with contextlib.suppress(requests.RequestException, KeyError):
                self._look()

    def _look(self) -> None:
        found = self._cluster.applications()[MODEL]["deployments"][DEPLOYMENT]
        states = [replica["state"] for replica in found["replicas"]]
        counts = [states.count(name) for name in ("STARTING", "RUNNING", "STOPPING")]
        self._looks.append(Look(time.time(), found["target_num_replicas"], *counts))
        for told in read_told():
            self._said[told.unix_s] = Said(
                told.unix_s, told.desired, told.demand_per_s, told.capacity_per_s, told.start_s,
                told.words,
            )  # fmt: skip


def measure(trial: Trial) -> Real:
    """Deploy, send, watch, and end all of it again.

    Raises:
        BrimfulError: something did not come up, or the client was not done in time.
    """
    with (
        tempfile.TemporaryDirectory(prefix="brimful-elastic-") as folder,
        local_cluster(ENVIRONMENT, directory=ROOT, logs=Path(folder), cpus=CPUS) as cluster,
    ):
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        try:
            with Watch(cluster) as watch:
                _deploy(cluster, trial, Path(folder))
                machine = Machine([psutil.Process(os.getpid()), psutil.Process(cluster.pid)])
                begin_s = time.time()
                answers = asyncio.run(_send(asks(trial.requests(), trial.seed), trial.seconds))
                shares = machine.shares()
                time.sleep(max(begin_s + trial.seconds + EVERY_S - time.time(), 0.0))
        finally:
            ray.shutdown()
    looks, said = watch.since(begin_s)
    served = tuple(map(_served, answers))
    return Real(looks, said, served, shares.waited_frac, shares.others_cores)


def _deploy(cluster: LocalCluster, trial: Trial, folder: Path) -> None:
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": PORT},
        "applications": [trial.application()],
    }
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    cluster.deploy(path)
    cluster.wait_running(DEPLOY_TIMEOUT_S, lambda state: print(state, file=sys.stderr))
    wait_reached(URL)


def asks(drawn: Requests, seed: int) -> list[Ask]:
    """The requests as a client sends them: it allows more tokens than come."""
    rng = random.Random(seed)
    rows = zip(drawn.input.tolist(), drawn.output.tolist(), drawn.arrival_s.tolist(), strict=True)
    return [
        Ask([rng.randrange(3, VOCAB) for _ in range(prompt)], LONGEST, arrival_s, output)
        for prompt, output, arrival_s in rows
    ]


async def _send(asked: Sequence[Ask], seconds: float) -> list[Answer]:
    try:
        async with asyncio.timeout(seconds + AFTER_S):
            return await send(URL, MODEL, asked)
    except TimeoutError:
        problem = f"requests were still under way {AFTER_S:g} s after the last had come"
        raise TrialError(problem) from None


def _served(answer: Answer) -> Served:
    itl_s = sum(answer.itl_s) / max(answer.tokens - 1, 1)
    return Served(answer.status, answer.whole, answer.ttft_s, itl_s, answer.total_s, answer.late_s)
