"""The whole stack over HTTP with one slow replica, under the same requests for each router."""

import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import ray
import yaml
from ray.exceptions import RayError
from tqdm import tqdm

from benchmarks.live.client_view import Seen, of_answers
from benchmarks.live.emulated import emulated_application
from benchmarks.report.document import ROOT
from controller.config import Sla
from controller.fleet.actor import find_controller
from controller.records import ReplicaReport
from replicas.profile_file import load_profile
from serve_app.demo.client import Answer, Ask, send
from serve_app.demo.cluster import LocalCluster, local_cluster, wait_reached
from serve_app.demo.tiny_model import VOCAB
from simulator.virtual.plan import engine_of
from simulator.workloads.requests import Request

PORT = 8124
URL = f"http://127.0.0.1:{PORT}/v1"
MODEL = "routed"
MAX_MODEL_LEN = 17_000  # the longest of the Azure trace
DEPLOY_TIMEOUT_S = 420
IDLE_TIMEOUT_S = 120
ENVIRONMENT = {
    # HAProxy's two others, fixed by default: another cluster on this machine may have them.
    "RAY_SERVE_HAPROXY_METRICS_PORT": "9124",
    "RAY_SERVE_HAPROXY_STATS_PORT": "8424",
    # Routers that go by prompts have to see them; the longest here has 80 KB.
    "RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY": "1",
    "RAY_SERVE_HAPROXY_INGRESS_REQUEST_ROUTER_BUFSIZE": str(256 * 1024),
}


class Fleet:
    """The deployed replicas; ``serve`` sends requests to them.

    Args:
        time_scale: how much slower than the profile their steps are.
    """

    def __init__(self, time_scale: float) -> None:
        self._time_scale = time_scale
        self._random = random.Random(0)

    def serve(self, router: str, requests: Sequence[Request]) -> tuple[Seen, int]:
        """What clients saw, in the profile's time, and how many were not served whole."""
        asks = [self._ask(r) for r in requests]
        with tqdm(total=len(asks), desc=router, file=sys.stderr) as bar:

            def one_done(answer: Answer) -> None:
                bar.update()

            answers = asyncio.run(
                send(
                    URL,
                    MODEL,
                    asks,
                    done=one_done,
                    extra={"user": router},
                )
            )
        whole = [(ask, a) for ask, a in zip(asks, answers, strict=True) if a.whole]
        if not whole:
            raise RuntimeError(f"no request was served: {answers[0].status} {answers[0].text}")
        seen = of_answers([ask for ask, _ in whole], [a for _, a in whole], self._time_scale)
        self.wait_idle()
        return seen, len(asks) - len(whole)

    def _ask(self, request: Request) -> Ask:
        prompt = [self._random.randrange(3, VOCAB) for _ in range(request.input_tokens)]
        room = MAX_MODEL_LEN - request.input_tokens
        allowed = min(request.max_tokens or room, room)
        return Ask(prompt, allowed, request.arrival_s * self._time_scale, request.output_tokens)

    def wait_idle(self) -> None:
        """Return once no replica has a request left."""
        until_s = time.monotonic() + IDLE_TIMEOUT_S
        while any(r.running + r.waiting for r in reports()):
            if time.monotonic() > until_s:
                raise RuntimeError("requests were still running two minutes after the last answer")
            time.sleep(0.5)


def reports() -> list[ReplicaReport]:
    """The last report of every replica."""
    with contextlib.suppress(RayError, ValueError):
        groups = ray.get(find_controller().snapshot.remote(), timeout=30)["groups"]
        return [one["report"] for group in groups.values() for one in group["replicas"].values()]
    return []


def application(
    profile: str, sla: Sla, replicas: int, time_scale: float, router: dict[str, object] | None
) -> dict[str, object]:
    """Emulated replicas, one of them at half speed, behind this router (None: the default)."""
    engine = engine_of(load_profile(profile))
    routed = {} if router is None else {"request_router_config": router}
    return emulated_application(
        MODEL,
        engine={
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "max_model_len": MAX_MODEL_LEN,
        },
        deployment={"num_replicas": replicas, **routed},
        emulate={
            "profile": profile,
            "time_scale": time_scale,
            "slow_replicas": 1,
            "slow_factor": 2.0,
        },
        env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
        batching={
            "policy": "adaptive",
            "sla": {"itl_ms": sla.itl_ms, "ttft_ms": sla.ttft_ms},
            "step_aside": False,  # its order within a replica is another matter
        },
    )


@contextlib.contextmanager
def fleet(app: dict[str, object], replicas: int, time_scale: float) -> Iterator[Fleet]:
    """The deployed fleet for a ``with`` block; every replica has reported once."""
    with (
        tempfile.TemporaryDirectory() as directory,
        local_cluster(ENVIRONMENT, directory=ROOT) as cluster,
    ):
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        try:
            _deploy(cluster, app, Path(directory), replicas)
            yield Fleet(time_scale)
        finally:
            ray.shutdown()


def _deploy(cluster: LocalCluster, app: dict[str, object], directory: Path, replicas: int) -> None:
    config = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": PORT},
        "applications": [app],
    }
    path = directory / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    cluster.deploy(path)
    cluster.wait_running(DEPLOY_TIMEOUT_S, lambda state: print(state, file=sys.stderr))
    until_s = time.monotonic() + DEPLOY_TIMEOUT_S
    while len(reports()) < replicas:
        if time.monotonic() > until_s:
            raise RuntimeError("the controller got no report of some replica")
        time.sleep(1)
    wait_reached(URL)
