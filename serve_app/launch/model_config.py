"""The Serve config of ``brimful serve MODEL``."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve_app.launch.arguments import Replicas
from serve_app.launch.config_file import LOOPBACK, PORT, autoscaled, document
from serve_app.launch.memory import free_memory_bytes

Data = dict[str, Any]
MIB = 2**20
# Of a replica on CPU. By default vLLM takes 92% of the machine's memory, and does not start if
# another process has it.
MOST_KV_BYTES = 4 * 2**30
KV_FLAGS = ("kv_cache_memory_bytes", "gpu_memory_utilization")


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
