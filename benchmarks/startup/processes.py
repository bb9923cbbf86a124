"""What each process of a cluster holds in memory and took of the CPU, by what it is for."""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psutil

# The first word that a process's command line holds says what it is.
KINDS = (
    ("VLLM::EngineCore", "EngineCore"),
    ("VLLM::Worker", "vLLM worker"),
    ("Server:", "replica"),
    ("LLMRouter", "LLMRouter"),
    ("TelemetryAgent", "telemetry"),
    ("BatchController", "batch controller"),
    ("ServeController", "Serve controller"),
    ("HAProxyManager", "HAProxy"),
    ("haproxy", "HAProxy"),
    ("ProxyActor", "fallback proxy"),
    ("ray::IDLE", "idle worker"),
)
REST = "Ray"
PER_REPLICA = ("replica", "EngineCore", "vLLM worker")


@dataclass(frozen=True, slots=True)
class Usage:
    """One process.

    Args:
        uss_mb: memory that is its alone.
        pss_mb: that, and its share of what it has in common with others.
        cpu_s: since its start.
    """

    kind: str
    uss_mb: float
    pss_mb: float
    cpu_s: float


def kind(command: Sequence[str]) -> str:
    """What a process is, by its command line."""
    line = " ".join(command)
    return next((name for word, name in KINDS if word in line), REST)


def usages(root: int) -> list[Usage]:
    """All processes that ``root`` started, and they in turn."""
    found = []
    for process in psutil.Process(root).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            memory, spent = process.memory_full_info(), process.cpu_times()
            found.append(
                Usage(
                    kind(process.cmdline()),
                    memory.uss / 2**20,
                    memory.pss / 2**20,
                    spent.user + spent.system,
                )
            )
    return found


def cpu_by_kind(root: int) -> dict[str, float]:
    """CPU seconds so far of all processes below ``root`` that live, by kind."""
    found: dict[str, float] = {}
    for process in psutil.Process(root).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            spent, name = process.cpu_times(), kind(process.cmdline())
            found[name] = found.get(name, 0.0) + spent.user + spent.system
    return found


def replica_mb(found: Iterable[Usage], replicas: int) -> float:
    """Memory that one replica's own processes hold alone (USS), on average."""
    return sum(one.uss_mb for one in found if one.kind in PER_REPLICA) / replicas
