"""The arguments of ``brimful serve``, and the Serve config that those of a model make."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from controller.config import A_DAY_MS
from controller.errors import ConfigError
from serve_app.checks.findings import BUILDER, CONSOLE
from serve_app.options import ABOVE_0, number

Data = dict[str, Any]
LOOPBACK = "127.0.0.1"
PORT = 8000
ABOUT = (
    "Serve a model or a Serve config: write the config, check it, start Ray (or join a running"
    " cluster), deploy, and ask for a first token. Ctrl-C drains and stops what was started."
)
EPILOG = (
    "Flags of `vllm serve` may follow; each becomes the engine_kwarg of its name: brimful"
    " serve MODEL --itl-ms 50 --max-model-len 4096 --tensor-parallel-size 2. On a cluster that"
    " outlives this command: --dry-run --write FILE, and `serve deploy FILE`."
)
SUFFIXES = (".yaml", ".yml")
LOCAL = (".", "/")  # what a name on the hub does not begin with
# Only for a model: a file has these itself.
OF_MODEL = (
    *("itl_ms", "ttft_ms", "replicas", "served_model_name", "host", "port"),
    *("emulate", "write"),
)
MIB = 2**20
# Of a replica on CPU. By default vLLM takes 92% of the machine's memory, and does not start if
# another process has it.
MOST_KV_BYTES = 4 * 2**30
KV_FLAGS = ("kv_cache_memory_bytes", "gpu_memory_utilization")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container: bytes, or "max"


def document(
    entry: Data,
    *,
    name: str = "llm",
    host: str = LOOPBACK,
    port: int = PORT,
    console: bool = False,
) -> Data:
    """The whole file.

    Args:
        entry: of ``llm_configs``.
        name: of the application.
        console: whether the console is served, too.
    """
    application = {
        "name": name,
        "route_prefix": "/",
        "import_path": BUILDER,
        "args": {"llm_configs": [entry]},
    }
    shown = {"name": "console", "route_prefix": "/console", "import_path": CONSOLE}
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": host, "port": port},
        "applications": [application, *([shown] if console else [])],
    }


def autoscaled(least: int, most: int) -> Data:
    """An ``autoscaling_config`` that sees load within seconds."""
    return {
        "min_replicas": least,
        "max_replicas": most,
        "metrics_interval_s": 2,
        "look_back_period_s": 10,
    }


def write(config: Data, head: str, path: Path) -> None:
    """Write it under a comment.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.write_text(head + yaml.safe_dump(config, sort_keys=False))
    except OSError as error:
        raise ConfigError([f"--write: {path} cannot be written: {error.strerror}"]) from None


@dataclass(frozen=True, slots=True)
class Replicas:
    """A number of replicas, or two bounds for autoscaling."""

    least: int
    most: int

    @property
    def scaled(self) -> bool:
        return self.least != self.most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments; any other one is vLLM's."""
    parser.description, parser.epilog, parser.allow_abbrev = ABOUT, EPILOG, False
    parser.usage = "brimful serve MODEL|FILE [OPTIONS] [VLLM'S OPTIONS]"
    parser.add_argument(
        "what", metavar="MODEL|FILE", help="name on the Hugging Face hub, folder, or Serve config"
    )
    parser.add_argument(
        "--itl-ms",
        type=_ms,
        metavar="MS",
        help="target for the time between two tokens (default: none)",
    )
    parser.add_argument(
        "--ttft-ms",
        type=_ms,
        metavar="MS",
        help="target for the time to first token (default: none)",
    )
    parser.add_argument(
        "--replicas",
        type=_replicas,
        metavar="N|MIN:MAX",
        help="number of replicas; two numbers turn autoscaling on (default: 1)",
    )
    parser.add_argument(
        "--served-model-name",
        metavar="NAME",
        help="model name that clients send (default: MODEL's)",
    )
    parser.add_argument("--host", help=f"address of the HTTP server (default: {LOOPBACK})")
    parser.add_argument("--port", type=int, help=f"port of the HTTP server (default: {PORT})")
    parser.add_argument(
        "--emulate",
        metavar="PROFILE",
        help="emulate an accelerator: steps take the time of this profile, tokens mean nothing",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the config to this file")
    parser.add_argument(
        "--dry-run", action="store_true", help="write, check and print the config, start nothing"
    )
    parser.add_argument(
        "--address",
        default="auto",
        metavar="HOST:PORT",
        help="address of Ray's head node; local: always start a cluster (default: RAY_ADDRESS,"
        " else the cluster on this machine, else a new one)",
    )


def given_file(args: argparse.Namespace, more: Sequence[str]) -> Path | None:
    """The Serve config that was named; None: it is a model.

    Raises:
        ConfigError: flags of a model with a file, vLLM's flags before the model, no such folder.
    """
    first = next(iter(more), None)
    if first is not None and args.argv.index(first) < args.argv.index(args.what):
        raise ConfigError([f"{first}: MODEL comes first, vLLM's flags come after it"])
    path = Path(args.what)
    if path.suffix not in SUFFIXES or path.is_dir():
        if args.what.startswith(LOCAL) and not path.is_dir():
            raise ConfigError([f"{args.what}: no such folder"])
        return None
    beside = [f"--{key.replace('_', '-')}" for key in OF_MODEL if getattr(args, key) is not None]
    beside += [flag.partition("=")[0] for flag in more if flag.startswith("-")]
    if beside:
        raise ConfigError([f"{flag}: is not allowed with a file; change {path}" for flag in beside])
    return path


def _ms(text: str) -> float:
    value = number("ms above 0, up to a day", ABOVE_0, A_DAY_MS)(text)
    return int(value) if value == int(value) else value


def _replicas(text: str) -> Replicas:
    least, colon, most = text.partition(":")
    try:
        made = Replicas(int(least), int(most) if colon else int(least))
    except ValueError:
        made = Replicas(0, 0)
    if not 1 <= made.least <= made.most:
        raise argparse.ArgumentTypeError(
            f"{text} is not allowed: a number from 1, or two as 1:8, the larger one last"
        )
    return made


def config_of(
    args: argparse.Namespace,
    engine: Mapping[str, Any],
    *,
    on_cpu: bool,
    cores: int | None = None,
    free_bytes: int | None = None,
) -> Data:
    """The file for these arguments.

    Args:
        engine: ``engine_kwargs`` from vLLM's own flags, which override all defaults here.
        on_cpu: whether engines run without an accelerator, or with an emulated one.
        cores, free_bytes: of this machine; None: read them.
    """
    replicas: Replicas = args.replicas or Replicas(1, 1)
    entry: Data = {"model_loading_config": _model(args)}
    defaults: Data = {}
    if on_cpu:
        cores = cores or os.cpu_count() or 1
        entry |= _on_cpu(cores, replicas.most)
        if not args.emulate:
            defaults = _cpu_engine(replicas.most, engine, free_bytes)
    entry["engine_kwargs"] = {**defaults, **engine}
    if replicas.scaled:
        scaling = {"autoscaling_config": autoscaled(replicas.least, replicas.most)}
        entry["deployment_config"] = {**entry.get("deployment_config", {}), **scaling}
    else:
        count = {"num_replicas": replicas.least}
        entry["deployment_config"] = {**count, **entry.get("deployment_config", {})}
    if args.emulate:
        entry["emulate"] = {"profile": args.emulate}
    sla = {key: getattr(args, key) for key in ("itl_ms", "ttft_ms") if getattr(args, key)}
    entry["batching"] = {"policy": "adaptive", **({"sla": sla} if sla else {})}
    if replicas.scaled:
        entry["scaling"] = {}
    host = args.host or LOOPBACK
    return document(
        entry,
        host=host,
        port=PORT if args.port is None else args.port,
        console=host == LOOPBACK,  # it asks for no key
    )


def _model(args: argparse.Namespace) -> Data:
    folder = Path(args.what)
    is_folder = folder.is_dir()
    source = str(folder.resolve()) if is_folder else args.what
    name = args.served_model_name or (folder.resolve().name if is_folder else args.what)
    return {"model_id": name, "model_source": source}


def _on_cpu(cores: int, most: int) -> Data:
    """Where an engine runs, and on how many cores."""
    # In Ray's CPUs, for the engine and the server process: half of the cores at most, so that an
    # ingress fits on two.
    share = round(min(0.5, cores / (4 * (most + 1))), 3)
    threads = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}  # cores are shared with all of Ray
    threads["OMP_NUM_THREADS"] = str(max((cores - 1) // most, 1))
    own = {name: value for name, value in threads.items() if name not in os.environ}
    return {
        "accelerator_config": {"kind": "cpu"},
        "placement_group_config": {"bundle_per_worker": {"CPU": share}},
        **({"runtime_env": {"env_vars": own}} if own else {}),
        "deployment_config": {"ray_actor_options": {"num_cpus": share}},
    }


def _cpu_engine(most: int, engine: Mapping[str, Any], free_bytes: int | None) -> Data:
    """Settings that let an engine start on a CPU, and soon."""
    found: Data = {"enforce_eager": True}  # compiling takes minutes on two cores
    if not os.environ.get("VLLM_CPU_KVCACHE_SPACE") and not any(key in engine for key in KV_FLAGS):
        free = free_memory_bytes() if free_bytes is None else free_bytes
        kv_bytes = min(MOST_KV_BYTES, free // (4 * most))
        found["kv_cache_memory_bytes"] = kv_bytes // MIB * MIB
    return found


def free_memory_bytes(limit: Path = MEMORY_LIMIT) -> int:
    """Memory for new processes: at most the free memory, and the container's limit."""
    available: int = psutil.virtual_memory().available
    try:
        return min(available, int(limit.read_text()))
    except (OSError, ValueError):
        return available
