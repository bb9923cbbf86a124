"""Who is compared in G3, on what: policies with their settings, workloads, profiles, SLAs."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.config import Sla
from replicas.profile import StepProfile

SLA_MS = 50.0  # of paper-fig3, whose step of one request takes 27 ms
SLA_STEPS = 1.85  # of the measured tables: the SLA in steps of one request


@dataclass(frozen=True, slots=True)
class Runner:
    """A policy with the settings it is raced over.

    Args:
        near: where its capacity probably is, share of the fluid limit: the search begins there.
        at_least: the target of ``adaptive`` over it.
    """

    name: str
    specs: tuple[str, ...]
    near: float
    at_least: float | None = None


def static(chunks: Sequence[int]) -> tuple[str, ...]:
    """vLLM with these chunks; its cap may not be above the chunk, and is 256 else."""
    return tuple(
        f"static:max_num_seqs={min(chunk, 256)},max_num_batched_tokens={chunk}" for chunk in chunks
    )


def algorithm_2(chunks: Sequence[int]) -> tuple[str, ...]:
    """The paper's Algorithms 1 and 2 in an engine with these chunks."""
    return tuple(spec.replace("static:", "paper:l0=buffer,") for spec in static(chunks))


ADAPTIVE = Runner("adaptive", ("adaptive",), 0.93)


def on_paper(adaptive: float, default: float, best: float, paper: float) -> tuple[Runner, ...]:
    """All policies, with where their capacities probably are.

    A chunk of 96 was left out: less than the load itself takes of a step.
    """
    return (
        Runner("adaptive", ("adaptive",), adaptive),
        Runner("default", ("static",), default, 5.0),
        Runner("best_static", static((128, 160, 192)), best, 1.05),
        Runner("algorithm_2", algorithm_2((128, 160, 192)), paper, 1.1),
    )


@dataclass(frozen=True, slots=True)
class Contest:
    """One workload on one profile.

    Args:
        sla_ms: D; None: ``SLA_STEPS`` times the step of one request.
        run_s: how long a run is at least, seconds of virtual time.
    """

    name: str
    profile: str
    workload: str
    runners: tuple[Runner, ...]
    sla_ms: float | None = None
    run_s: float = 150.0


def on_table(name: str, profile: str, workload: str, chunks: Sequence[int]) -> Contest:
    """A contest on a measured table, with fewer baselines and shorter runs."""
    baselines = Runner("default", ("static",), 0.3), Runner("best_static", static(chunks), 0.8, 1.0)
    return Contest(name, profile, workload, (ADAPTIVE, *baselines), run_s=60.0)


CONTESTS = (
    Contest("257-62", "paper-fig3", "exponential:257,62", on_paper(0.96, 0.085, 0.8, 0.75), SLA_MS),
    Contest(
        "257-447", "paper-fig3", "exponential:257,447", on_paper(0.96, 0.13, 0.8, 0.75), SLA_MS
    ),
    Contest(
        "azure", "paper-fig3", "azure-2023-conversation", on_paper(0.92, 0.13, 0.87, 0.82), SLA_MS
    ),
)
TABLES = (
    on_table("h100-70b", "h100-Llama-2-70b-hf-tp4", "exponential:257,62", (448, 384, 512)),
    on_table("a100-7b", "a100-Llama-2-7b-hf-tp1", "azure-2023-conversation", (64, 48, 80)),
)


def sla_of(contest: Contest, profile: StepProfile) -> Sla:
    """The agreement: p99 of the time between tokens."""
    if contest.sla_ms is not None:
        return Sla(itl_ms=contest.sla_ms)
    return Sla(itl_ms=round(SLA_STEPS * profile.step_s(1, 500, 0, 0) * 1000, 1))
