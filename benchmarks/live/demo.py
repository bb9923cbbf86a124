"""``brimful demo``: two real engines, the same requests without control and with it."""

import argparse
import asyncio
import contextlib
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import ray
import yaml
from rich.console import Console
from tqdm import tqdm

from benchmarks.live.calibrate import PROMPT_TOKENS, Calibration
from benchmarks.live.cluster import ClusterError, LocalCluster, local_cluster
from benchmarks.live.demo_load import Load, make_load
from benchmarks.live.demo_plot import draw
from benchmarks.live.demo_report import (
    Phase,
    Sample,
    claims,
    client_table,
    replica_table,
    too_busy,
)
from benchmarks.live.load import Answer, send
from benchmarks.live.machine import Machine, suit_processor
from benchmarks.live.tiny_model import make_tiny_model
from configs import shipped
from controller.errors import ConfigError
from controller.fleet.actor import find_controller

CONFIG = shipped("cpu.yaml")
SAMPLE_S = 0.25
DEPLOY_TIMEOUT_S = 600
SWITCH_TIMEOUT_S = 30
WARM_UP_S = 10.0  # the first requests after a start are slow, and the policy has no step times yet
WIDTH = 80


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
                    seen.append(Sample(at_s, report, report.enforced))


def switch(controller: Any, replicas: int, *, enforce: bool) -> None:
    """Switch control of all replicas, and return once each has taken it over.

    Raises:
        ClusterError: one did not within half a minute.
    """
    ray.get(controller.switch.remote(enforce, None))
    until_s = time.monotonic() + SWITCH_TIMEOUT_S
    while time.monotonic() < until_s:
        groups = ray.get(controller.snapshot.remote())["groups"].values()
        reported = [
            replica["report"].enforced for g in groups for replica in g["replicas"].values()
        ]
        if reported.count(enforce) == replicas:
            return
        time.sleep(SAMPLE_S)
    raise ClusterError(f"a replica did not take over the switch within {SWITCH_TIMEOUT_S} s")


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


def one_phase(app: "Demo", load: Load, controller: Any, begin_s: float, *, enforce: bool) -> Phase:
    """Send the load once, with a progress bar on a terminal."""
    switch(controller, app.replicas, enforce=enforce)
    state = "on" if enforce else "off"
    with (
        Watch(controller, begin_s) as watch,
        tqdm(total=len(load.asks), desc=f"control {state}", unit="req", disable=None) as bar,
    ):

        def one_done(answer: Answer) -> None:
            bar.update()

        machine = Machine([psutil.Process()])
        from_s = time.perf_counter() - begin_s
        answers = asyncio.run(send(app.base_url, app.model, load.asks, done=one_done))
        to_s = time.perf_counter() - begin_s
        shares = machine.shares()
    return Phase(enforce, from_s, to_s, load.asks, answers, shares, watch.samples)


class Demo:
    """The shipped configuration for this machine.

    Raises:
        ClusterError: its port is in use.
    """

    def __init__(self) -> None:
        self._config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
        self.entry = self._config["applications"][0]["args"]["llm_configs"][0]
        loading = self.entry["model_loading_config"]
        self.model: str = loading["model_id"]
        self.model_path = Path(loading["model_source"]).absolute()
        loading["model_source"] = str(self.model_path)
        self.replicas: int = self.entry["deployment_config"]["num_replicas"]
        suit_processor(self.entry["engine_kwargs"])
        options = self._config["http_options"]
        self.base_url = f"http://{options['host']}:{options['port']}/v1"
        self._require_free(options["port"])

    @staticmethod
    def _require_free(port: int) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                raise ClusterError(
                    f"port {port} is in use: stop what listens there, or change"
                    f" http_options.port in {CONFIG}"
                ) from None

    def with_sla(self, itl_ms: float, directory: Path) -> Path:
        """The configuration to deploy: as shipped, with an SLA that this machine can hold."""
        self.entry["batching"]["sla"]["itl_ms"] = itl_ms
        path = directory / "serve.yaml"
        path.write_text(yaml.safe_dump(self._config))
        return path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful demo``."""
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=28.0,
        help="of requests, without and again with control (default: %(default)g)",
    )
    parser.add_argument(
        "--plot",
        type=Path,
        default=Path(".cache/demo.png"),
        metavar="FILE",
        help="where the picture goes (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="leave it running until Ctrl-C")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 3600:  # said now, not when two engines have been started for it
        raise argparse.ArgumentTypeError(f"{text} is not allowed: a number from 1 to 3600")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Everything from nothing; 0 where all that it claims held."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)  # a log has no width of its own
    demo = Demo()
    directory = Path(tempfile.mkdtemp(prefix="brimful-demo-"))  # stays where something goes wrong
    console.print(f"[1/7] A tiny random-weight model in {demo.model_path} ...", soft_wrap=True)
    make_tiny_model(demo.model_path)
    console.print("[2/7] Starting Ray, and timing steps on this machine (usually 20 s) ...")
    with contextlib.ExitStack() as stack:
        # Its engines load while Ray starts; both are there before anything is timed.
        with Calibration(demo.model_path, demo.entry["engine_kwargs"], demo.replicas) as engines:
            cluster = stack.enter_context(local_cluster(logs=directory))
            times = engines.measure()
        sla_ms = times.sla_ms()
        console.print(
            f"      a step takes {times.decode_s * 1000:.1f} ms, with a prompt of"
            f" {PROMPT_TOKENS} tokens {times.prompt_s * 1000:.0f} ms:\n"
            f"      the SLA is {sla_ms:g} ms between two tokens"
        )
        console.print(f"[3/7] serve deploy: {demo.replicas} vLLM engines (usually 60 to 100 s) ...")
        _deploy(cluster, demo.with_sla(sla_ms, directory), console)
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        console.print(f"[4/7] Warming up with the same kind of load ({WARM_UP_S:g} s) ...")
        warm_up = make_load(times, demo.replicas, WARM_UP_S, seed=0)
        off, on = _phases(console, demo, warm_up, make_load(times, demo.replicas, args.seconds))
        held = _report(console, off, on, sla_ms, args.plot)
        if args.keep:
            _keep(console, demo)
        ray.shutdown()
        console.print("[7/7] Stopping Ray and both engines (usually 10 s) ...")
    shutil.rmtree(directory)
    console.print("Stopped.")
    return 0 if held else 1


def _deploy(cluster: LocalCluster, config: Path, console: Console) -> None:
    start_s = time.monotonic()
    cluster.deploy(config)
    with console.status("deploying") as status:
        cluster.wait_running(DEPLOY_TIMEOUT_S, lambda now: status.update(f"      {now}"))
    console.print(f"      running after {time.monotonic() - start_s:.0f} s")


def _phases(console: Console, demo: Demo, warm_up: Load, load: Load) -> tuple[Phase, Phase]:
    controller = wait_controller()
    asyncio.run(send(demo.base_url, demo.model, warm_up.asks))
    what = f"{load.streams} streams, {load.long_prompts} prompts of {load.prompt_tokens} tokens"
    begin_s = time.perf_counter()
    phases = []
    for number, enforce in ((5, False), (6, True)):
        state = "on" if enforce else "off"
        console.print(f"[{number}/7] Control {state}: {what} ...")
        phases.append(one_phase(demo, load, controller, begin_s, enforce=enforce))
    return phases[0], phases[1]


def _report(console: Console, off: Phase, on: Phase, sla_ms: float, plot: Path) -> bool:
    """Print all of it; whether all held that does not depend on the machine."""
    busy = too_busy([off, on])
    if busy:
        console.print(
            f"\nThis machine was too busy for a fair comparison: {busy}.\n"
            "Times at the client would say more about that than about the control, so they are"
            " left out.\nStop what else runs, and try again."
        )
    else:
        console.print()
        console.print(client_table(off, on, sla_ms))
    console.print(replica_table(off, on))
    try:
        draw([off, on], sla_ms, plot)
        console.print(f"Cap, prompt tokens and ITL over time: {plot.absolute()}", soft_wrap=True)
    except ConfigError as error:  # the figures stand without it
        console.print(f"No picture: {error}", soft_wrap=True)
    found = claims(off, on, fair=not busy)
    for claim in found:
        console.print(claim.line())
    return all(claim.held for claim in found if not claim.target)


def _keep(console: Console, demo: Demo) -> None:
    console.print(
        "\nIt stays up until Ctrl-C. Try, in another terminal:\n\n"
        f"  curl {demo.base_url}/completions -H 'content-type: application/json' \\\n"
        f"""    -d '{{"model": "{demo.model}", "prompt": "The river", "max_tokens": 16}}'\n\n"""
        "  from openai import OpenAI\n"
        f'  client = OpenAI(base_url="{demo.base_url}", api_key="none")\n'
        "  print(client.completions.create(\n"
        f'      model="{demo.model}", prompt="The river", max_tokens=16))\n',
        markup=False,
        highlight=False,
    )
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print()
