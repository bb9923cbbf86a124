"""The demo's deployment: starts it, changes its batching block, and sends the load.

And what this machine is fit for.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import yaml
from rich.console import Console
from tqdm import tqdm

from configs import shipped
from controller.config import parse_batching
from controller.fleet.actor import find_controller
from serve_app.apply.cluster import ClusterError, wait_reached
from serve_app.demo.calibrate import Load
from serve_app.demo.client import Answer, send
from serve_app.demo.model import DemoModel, StaticLimits
from serve_app.demo.report import Phase, Sample
from serve_app.launch.local_cluster import LocalCluster, end_as_by_ctrl_c, require_free
from serve_app.launch.model_config import free_memory_bytes

CPUINFO = Path("/proc/cpuinfo")
SCHEDSTAT = Path("/proc/thread-self/schedstat")  # Linux: ns running, ns waiting for a core, slices
GIB = 2**30
# Ray, Serve and two replicas of the tiny model take 3.3 GiB; this model's weights and a KV memory
# of 24k tokens add 1 GiB to each engine, and the client takes its part.
SMALL_MODEL_GIB = 6.0
CONFIG = shipped("cpu.yaml")
SAMPLE_S = 0.25
DEPLOY_TIMEOUT_S = 600
SWITCH_TIMEOUT_S = 30


def small_model_obstacle(free_bytes: int | None = None, cpuinfo: Path = CPUINFO) -> str | None:
    """Why two engines of the small real model do not run well here; None: they do.

    Args:
        free_bytes: memory that may still be taken; None: as the system says.
    """
    if _lacks_avx512(cpuinfo):
        return "no AVX-512"
    free_gib = (free_memory_bytes() if free_bytes is None else free_bytes) / GIB
    if free_gib < SMALL_MODEL_GIB:
        return f"{free_gib:.1f} GiB of memory free, {SMALL_MODEL_GIB:.1f} needed"
    return None


def suit_processor(engine_kwargs: dict[str, Any], cpuinfo: Path = CPUINFO) -> None:
    """Take float32 instead of bfloat16 on an x86 processor without AVX-512.

    PyTorch multiplies bfloat16 without the processor's help there: a prompt of 1,500 tokens of the
    demo's model takes 2.7 times as long. KV memory stays that for as many tokens.
    """
    if engine_kwargs["dtype"] == "bfloat16" and _lacks_avx512(cpuinfo):
        engine_kwargs["dtype"] = "float32"
        engine_kwargs["kv_cache_memory_bytes"] *= 2


def _lacks_avx512(cpuinfo: Path) -> bool:
    """Whether this is an x86 processor without it."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return "sse2" in flags and "avx512f" not in flags


class Waited:
    """How much of the time since it was made this thread, the client's, has waited for a core."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), client_wait_s()

    def frac(self) -> float | None:
        """None: the system does not say."""
        (began_s, before_s), after_s = self._begin, client_wait_s()
        if before_s is None or after_s is None:
            return None
        return (after_s - before_s) / (time.perf_counter() - began_s)


def client_wait_s() -> float | None:
    """How long this thread has waited for a core, seconds; None if the system does not say."""
    try:
        return int(SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


class Watch:
    """Samples the controller while the load runs: replica id -> samples, the oldest first."""

    def __init__(self, controller: Any, begin_s: float) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self._controller, self._begin_s = controller, begin_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watch":
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        snapshot = ray.get(self._controller.snapshot.remote())
        at_s = time.perf_counter() - self._begin_s
        for group in snapshot["groups"].values():
            for replica_id, replica in group["replicas"].items():
                report, seen = replica["report"], self.samples.setdefault(replica_id, [])
                if not seen or seen[-1].report.seq != report.seq:
                    seen.append(Sample(at_s, report, replica["limits"]))


def wait_controller() -> Any:
    """The batch controller; the first replica that reports starts it, seconds after it serves.

    Raises:
        ClusterError: there is none after half a minute.
    """
    until_s = time.monotonic() + SWITCH_TIMEOUT_S
    while time.monotonic() < until_s:
        with contextlib.suppress(ValueError):
            return find_controller()
        time.sleep(SAMPLE_S)
    raise ClusterError(f"no batch controller within {SWITCH_TIMEOUT_S} s")


class Stack:
    """The shipped configuration for this machine, with one of the demo's models.

    Raises:
        ClusterError: its port is in use.
    """

    def __init__(self, model: DemoModel) -> None:
        self.model = model
        self._config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
        self._app = self._config["applications"][0]
        entry = self._app["args"]["llm_configs"][0]
        entry["model_loading_config"] = {
            "model_id": model.name,
            "model_source": str(model.folder.absolute()),
        }
        entry["engine_kwargs"] |= model.engine_kwargs
        suit_processor(entry["engine_kwargs"])
        self._bounds = entry["batching"].pop("max_running")
        del entry["batching"]["sla"]  # comes when the stack runs
        self.replicas: int = entry["deployment_config"]["num_replicas"]
        options = self._config["http_options"]
        self.base_url = f"http://{options['host']}:{options['port']}/v1"
        require_free(options["port"], f"http_options.port in {CONFIG}")

    def start(self, cluster: LocalCluster, directory: Path, console: Console) -> None:
        """Deploy it, and wait until it answers."""
        start_s = time.monotonic()
        self._cluster, self._path = cluster, directory / "serve.yaml"
        self._deploy()
        with console.status("deploying") as status:
            cluster.wait_running(DEPLOY_TIMEOUT_S, lambda now: status.update(f"      {now}"))
        wait_reached(self.base_url)
        console.print(f"      running after {time.monotonic() - start_s:.0f} s")
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        end_as_by_ctrl_c()  # Ray ends by SIGTERM in a way of its own
        self.controller = wait_controller()

    def _deploy(self) -> None:
        self._path.write_text(yaml.safe_dump(self._config))
        self._cluster.deploy(self._path)

    def go_by(self, batching: dict[str, Any]) -> None:
        """Give the running engines another batching block; return once each uses it.

        Raises:
            ClusterError: one does not within half a minute.
        """
        name = f"BrimfulServer:{self.model.name}"
        self._app["deployments"] = [{"name": name, "user_config": {"batching": batching}}]
        self._deploy()
        wanted = parse_batching(batching)
        self._wait("another batching block", lambda replica: replica["batching"] == wanted)

    def adaptive(self, sla_ms: float) -> dict[str, Any]:
        """The shipped policy under this SLA."""
        return {"policy": "adaptive", "sla": {"itl_ms": sla_ms}, "max_running": self._bounds}

    def static(self, limits: StaticLimits) -> dict[str, Any]:
        """A policy that acts as if vLLM had been started with these limits."""
        return {
            "policy": "static",
            "max_running": {"max": limits.cap},
            "static": {"max_num_batched_tokens": limits.token_budget},
        }

    def switch(self, *, enforce: bool) -> None:
        """Switch control of all replicas, and return once each has taken it over.

        Raises:
            ClusterError: one did not within half a minute.
        """
        ray.get(self.controller.switch.remote(enforce, None))
        self._wait("the switch", lambda replica: replica["report"].enforced == enforce)

    def _wait(self, what: str, done: Callable[[dict[str, Any]], bool]) -> None:
        until_s = time.monotonic() + SWITCH_TIMEOUT_S
        while time.monotonic() < until_s:
            groups = ray.get(self.controller.snapshot.remote())["groups"].values()
            if sum(done(r) for g in groups for r in g["replicas"].values()) == self.replicas:
                return
            time.sleep(SAMPLE_S)
        raise ClusterError(f"a replica did not take over {what} within {SWITCH_TIMEOUT_S} s")


def one_phase(stack: Stack, load: Load, name: str, begin_s: float) -> Phase:
    """Send the load once, with a progress bar on a terminal."""
    with (
        Watch(stack.controller, begin_s) as watch,
        tqdm(total=len(load.asks), desc=name, unit="req", disable=None) as bar,
    ):

        def one_done(answer: Answer) -> None:
            bar.update()

        waited = Waited()
        from_s = time.perf_counter() - begin_s
        answers = asyncio.run(send(stack.base_url, stack.model.name, load.asks, done=one_done))
        to_s = time.perf_counter() - begin_s
        waited_frac = waited.frac()
    return Phase(name, from_s, to_s, load.asks, answers, waited_frac, watch.samples)
