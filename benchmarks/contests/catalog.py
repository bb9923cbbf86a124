"""What G3 is measured on: workloads, profiles, SLAs."""

from dataclasses import dataclass

from controller.config import Sla
from replicas.profiles.profile import StepProfile
from simulator.replay.capacity import TOP

SLA_MS = 50.0  # of paper-fig3, whose step of one request takes 27 ms
SLA_STEPS = 1.85  # of the measured tables: the SLA in steps of one request


@dataclass(frozen=True, slots=True)
class Contest:
    """One workload on one profile.

    Args:
        default: where the default's capacity probably is, share of the fluid limit; None: it does
            not run.
        sla_ms: D; None: ``SLA_STEPS`` times the step of one request.
        run_s: how long a run is at least, seconds of virtual time.
        algorithm_2: the paper's Algorithms 1 and 2 run too.
        top: where searches end, times the fluid limit.
    """

    name: str
    profile: str
    workload: str
    default: float | None = 0.3
    sla_ms: float | None = None
    run_s: float = 60.0
    algorithm_2: bool = False
    top: float = TOP


def on_paper(name: str, workload: str, default: float) -> Contest:
    """A contest on the paper's line, with Algorithm 2 and longer runs."""
    return Contest(name, "paper-fig3", workload, default, SLA_MS, 150.0, algorithm_2=True)


CONTESTS = (
    on_paper("257-447", "exponential:257,447", 0.13),
    on_paper("257-62", "exponential:257,62", 0.085),
    on_paper("azure", "azure-2023-conversation", 0.13),
    Contest("h100-70b", "h100-Llama-2-70b-hf-tp4", "exponential:257,62", 0.11),
    Contest("a100-7b", "a100-Llama-2-7b-hf-tp1", "azure-2023-conversation", 0.18),
)


def sla_of(contest: Contest, profile: StepProfile) -> Sla:
    """The agreement: p99 of the time between tokens."""
    itl_ms = contest.sla_ms
    if itl_ms is None:
        itl_ms = round(SLA_STEPS * profile.step_s(1, 500, 0, 0) * 1000, 1)
    return Sla(itl_ms=itl_ms)
