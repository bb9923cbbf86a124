"""``brimful serve``: config, check, Ray, replicas, first token; Ctrl-C drains and stops."""

import argparse
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import requests

from controller.errors import BrimfulError
from replicas.server.proxies import go_past
from serve_app import haproxy
from serve_app.apply.changes import is_model
from serve_app.apply.cluster import (
    AWAY_S,
    Cluster,
    ClusterError,
    beside,
    describe,
    starting,
    wait_reached,
)
from serve_app.apply.command import read_config
from serve_app.checks.command import import_models, quick_file, sound
from serve_app.checks.findings import BUILDER, CONSOLE, Target, builder_of
from serve_app.checks.vllm_config import sentence
from serve_app.environment import is_cpu_build, variables
from serve_app.launch.engine_flags import engine_kwargs
from serve_app.launch.first_token import first_token
from serve_app.launch.joined import Joined, find
from serve_app.launch.local_cluster import (
    DRAIN,
    ENDS,
    LocalCluster,
    end_as_by_ctrl_c,
    require_free,
    this_machine,
    use_token,
)
from serve_app.launch.model_config import PORT, add_arguments, config_of, given_file, write
from serve_app.launch.phases import Phases
from serve_app.launch.stop import end_unplaced, remove, wait_gone

__all__ = ["TAKES_MORE", "add_arguments", "run"]

TAKES_MORE = True  # other flags are vLLM's
FOUND = 2
LOOK_S = 5.0
# Seconds that a removed replica waits for load balancers to notice: Ray's default is 30, but
# here this machine's HAProxy is the only one.
DEREGISTERED = "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"
TRACEBACK = "Traceback (most recent call last)"
CALLS = re.compile(r"^(?:Traceback |  File ).*\n(?:[ \t]+.*\n)*", re.MULTILINE)
SLOW = "to initialize"  # Serve's message on each start above 30 s; phases say more
ANYWHERE = ("0.0.0.0", "::", "")
SECRET = "--(?:hf[-_]token|api[-_]key)"

Data = dict[str, Any]


class Clock:
    """Prints lines with the seconds since the start."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the reader is gone; what runs is stopped all the same
            print(f"{time.monotonic() - self._began_s:5.0f} s  {text}", flush=True)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C; 0 if all was stopped after it ran.

    Raises:
        BrimfulError: the arguments, the config, Ray or a replica are at fault; everything started
            is stopped.
    """
    given = given_file(args, args.more)
    if args.more:
        import_models()
    engine = engine_kwargs(args.more, ("--itl-ms", "--ttft-ms", "--replicas"))
    joined = None if args.dry_run else find(args.address)
    with contextlib.ExitStack() as exits:
        folder = Path(tempfile.mkdtemp(prefix="brimful-serve-"))
        exits.callback(shutil.rmtree, folder, ignore_errors=True)
        path = given or args.write or folder / "serve.yaml"
        if given is None:
            on_cpu = bool(args.emulate) or is_cpu_build()
            config = config_of(args, engine, on_cpu=on_cpu)
            write(config, f"# {shlex.join(['brimful', *_shown(sys.argv[1:])])}\n", path)
        target, early = _target(joined, args), {path: quick_file(path)}
        if not sound([path], target, early, named=given is not None):
            return FOUND
        if args.dry_run:
            print(path.read_text(), end="")
            return 0
        config, _ = read_config(path)
        return _serve(config, joined, folder, exits)


def _shown(argv: list[str]) -> list[str]:
    """The arguments without secrets."""
    shown = [re.sub(rf"^({SECRET})=.*", r"\1=...", word) for word in argv]
    return [
        "..." if k and re.fullmatch(SECRET, argv[k - 1]) else shown[k] for k in range(len(argv))
    ]


def _target(joined: Joined | None, args: argparse.Namespace) -> Target:
    if joined is not None:
        env, there = joined.environment(), joined.nodes
        return Target(env, local_paths=True, nodes=there, grows=joined.grows)
    # If nothing is started, the file may be for another machine.
    here = None if args.dry_run else [this_machine()]
    return Target({**variables(), **os.environ}, local_paths=True, nodes=here)


def _serve(config: Data, joined: Joined | None, folder: Path, exits: contextlib.ExitStack) -> int:
    clock, own, began = Clock(), None, False
    end_as_by_ctrl_c()
    try:
        if joined is None:
            own = _start(config, folder, exits, clock)
            cluster, logs, address = Cluster(own.dashboard_url), own.session_logs, own.gcs_address
        else:
            cluster, logs, address = _join(joined, clock), joined.logs, joined.address
        config = _deployable(config, cluster.applications())
        phases = Phases(logs)
        began = True  # an interrupted request deploys all the same
        _put(cluster, config)
        _wait(cluster, config, phases, clock, own)
        _tell(cluster, config, clock, own)
        _watch(cluster, config, clock, own)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            print(flush=True)
    except Exception:
        if began and own is None:
            with contextlib.suppress(BrimfulError, requests.RequestException):
                _remove(cluster, _names(config), address)
        raise
    if began:
        _drain(cluster, _names(config), address, clock, own=own is not None)
    return 0


def _start(config: Data, folder: Path, exits: contextlib.ExitStack, clock: Clock) -> LocalCluster:
    """A cluster of our own."""
    port = int((config.get("http_options") or {}).get("port", PORT))
    require_free(port, "--port, or http_options.port of the file")
    clock.say("Ray: starting on this machine")
    use_token()
    own = LocalCluster(_of_own(), Path.cwd(), folder, usual_ports=True)
    exits.callback(_stop, own, clock)
    own.wait_started()
    clock.say(f"Ray: started, dashboard {own.dashboard_url}")
    return own


def _join(joined: Joined, clock: Clock) -> Cluster:
    """The running cluster."""
    clock.say(f"Ray: joins the cluster of {joined.dashboard}")
    for line in joined.lacking():
        print(f"note: {line}", file=sys.stderr)
    cluster = Cluster(joined.dashboard)
    if cluster.by_kuberay():
        raise ClusterError("KubeRay's operator owns this cluster: `kubectl apply` deploys")
    return cluster


def _of_own() -> dict[str, str]:
    """Variables for Ray's processes in addition to the user's."""
    ours = {**variables(), DRAIN: "0", DEREGISTERED: "5"}
    del ours[haproxy.OURS]  # the cluster writes one that finds this code
    return {name: value for name, value in ours.items() if name not in os.environ}


def _deployable(config: Data, running: Mapping[str, Data]) -> Data:
    """The config without a console if there is one.

    Raises:
        ClusterError: an application of the same name or route runs already.
    """
    routes = {
        told["route_prefix"]: name for name, told in running.items() if told.get("route_prefix")
    }
    wanted = [
        one
        for one in config["applications"]
        if not (one["import_path"] == CONSOLE and one.get("route_prefix") in routes)
    ]
    for one in wanted:
        name, route = one.get("name", "default"), one.get("route_prefix", "/")
        if name in running or route in routes:
            held = name if name in running else routes[route]
            raise ClusterError(
                f"application {held!r} runs in this cluster already, at"
                f" {running[held].get('route_prefix')}: `brimful apply FILE` changes it; or give"
                " yours another name and route_prefix in a FILE (`--dry-run --write FILE` makes"
                " one), or `--address local` for a cluster of its own"
            )
    return {**config, "applications": wanted}


def _names(config: Data) -> list[str]:
    return [one.get("name", "default") for one in config["applications"]]


def _put(cluster: Cluster, config: Data) -> None:
    ours = dict(zip(_names(config), config["applications"], strict=True))
    cluster.put({**config, "applications": beside(cluster.applications(), ours)})


def _wait(
    cluster: Cluster, config: Data, phases: Phases, clock: Clock, own: LocalCluster | None
) -> None:
    """Print what happens until every replica runs."""
    said, told, seen_s = set(), {}, time.monotonic()

    def read() -> dict[str, Data]:
        nonlocal told, seen_s
        _require_alive(own)
        try:
            told, seen_s = cluster.applications(_names(config)), time.monotonic()
        except BrimfulError:  # Ray's interface is away for the moment
            if time.monotonic() - seen_s > AWAY_S:
                raise
            return {}
        return told if len(told) == len(config["applications"]) else {}

    try:
        for state in starting(read):
            for line in (state, *phases.new(), *_messages(told)):
                if line not in said:
                    clock.say(line)
                    said.add(line)
    except ClusterError as error:
        list(phases.new())
        raise ClusterError(reason(str(error), phases)) from None
    for line in phases.new():
        clock.say(line)


def reason(failure: str, phases: Phases) -> str:
    """Why a replica did not start, without the stack frames of Ray and vLLM."""
    if TRACEBACK not in failure:
        return failure
    head = failure.partition("\n")[0]
    why = phases.causes or [sentence(CALLS.split(failure)[-1])]  # a message may have several lines
    return "\n".join((f"{head} a replica failed to start", *why, f"more in {phases.logs}"))


def _messages(applications: Mapping[str, Data]) -> Iterator[str]:
    """Serve's messages on deployments that wait, for example for a node."""
    for name, told in applications.items():
        for deployment, one in told["deployments"].items():
            if one["message"] and SLOW not in one["message"]:
                yield f"{name}, {deployment}: {' '.join(one['message'].split())}"


def _require_alive(own: LocalCluster | None) -> None:
    if own is not None and own.ended:
        raise ClusterError(f"Ray has ended; it said:\n{own.said}")


def _tell(cluster: Cluster, config: Data, clock: Clock, own: LocalCluster | None) -> None:
    """Ask each model for a token, and print the next commands."""
    host, port = cluster.http()
    root = f"http://{'127.0.0.1' if host in ANYWHERE else host}:{port}"
    go_past(root)
    lines = []
    for one in config["applications"]:
        base = root + (one.get("route_prefix", "/") or "").rstrip("/")
        if one["import_path"] == CONSOLE:
            lines.append(f"console: {base}")
        if builder_of(one) != BUILDER:
            continue
        name = one.get("name", "default")
        if not _has_replica(cluster.applications()[name]):
            clock.say(f"{name}: the first request starts a replica")
            continue
        wait_reached(f"{base}/v1")
        try:
            came = first_token(f"{base}/v1")
        except BrimfulError as error:  # for example, it serves embeddings
            clock.say(f"{error}; the start goes on")
            continue
        if came is None:
            clock.say(f"{base}/v1 needs an API key")
            continue
        clock.say(f"first token of {came.model}: {came.seconds * 1000:.0f} ms after its request")
        lines.append(came.curl(f"{base}/v1"))
    print("", *lines, "brimful status, brimful explain: what the replicas do", sep="\n  ")
    stops = (
        "drains, and stops Ray"
        if own is not None
        else "drains, and leaves Ray and other applications running"
    )
    print(f"  Ctrl-C or SIGTERM {stops}; twice: at once\n", flush=True)


def _has_replica(told: Data) -> bool:
    """Whether a model of this application runs at all: they may scale to nothing."""
    models = [one for name, one in told["deployments"].items() if is_model(name)]
    return any(one.get("replicas") for one in models) or not models


def _watch(cluster: Cluster, config: Data, clock: Clock, own: LocalCluster | None) -> None:
    """Runs until Ctrl-C; says so if the number or the health of replicas changes."""
    state = ""
    while True:
        _require_alive(own)
        with contextlib.suppress(BrimfulError):  # Serve's controller is away for the moment
            now = describe(cluster.applications(_names(config)))
            if state and now != state:
                clock.say(now)
            state = now
        time.sleep(LOOK_S)


def _remove(cluster: Cluster, names: list[str], address: str) -> None:
    running = cluster.applications()
    remove(cluster, names)
    end_unplaced(cluster, running, names, address)


def _drain(cluster: Cluster, names: list[str], address: str, clock: Clock, *, own: bool) -> None:
    """Remove what was deployed, and wait until streams under way have ended."""
    try:
        _remove(cluster, names, address)
        clock.say("draining: open streams run to their end (Ctrl-C: stop at once)")
        wait_gone(cluster, names, clock.say)
    except KeyboardInterrupt:
        clock.say(
            "not waited for" if own else "not waited for: the other replicas drain by themselves"
        )
    except (BrimfulError, requests.RequestException) as error:
        clock.say(f"not drained: {error}")


def _stop(own: LocalCluster, clock: Clock) -> None:
    """End the cluster, even if Ctrl-C is pressed meanwhile."""
    for one in (signal.SIGINT, *ENDS):
        signal.signal(one, signal.SIG_IGN)
    clock.say("Ray: stopping")
    own.stop()
    clock.say("stopped")
