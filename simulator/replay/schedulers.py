"""Which scheduler runs a plan, and what it takes beside vLLM's own arguments."""

from collections.abc import Sequence
from typing import Any

from simulator.virtual.clairvoyant import ClairvoyantScheduler
from simulator.virtual.corner_engines import GrammarScheduler
from simulator.virtual.ground import Ground
from simulator.virtual.plan import Plan
from simulator.virtual.rivals import of_benches
from simulator.virtual.scheduler import VirtualScheduler, watched_scheduler
from simulator.virtual.watch import Watch
from simulator.workloads.requests import Request

RESERVED = "benchmarks.baselines.reserved:ReservedScheduler"
RIVAL = "benchmarks.baselines.rival_scheduler:RivalScheduler"


def scheduler_of(
    plan: Plan, ground: Ground, counted: Sequence[Request]
) -> tuple[type[VirtualScheduler], dict[str, Any]]:
    """The class, and its own arguments but for the clock.

    Args:
        counted: what the clairvoyant knows.
    """
    own: dict[str, Any] = {"speculation": plan.speculation}
    if plan.kind == "reserved":
        return of_benches(RESERVED, plan.name), own
    if plan.kind == "clairvoyant":
        own |= {"requests": counted, "profile": ground.profile, "itl_s": plan.itl_s}
        own["preempts"] = not plan.spec.startswith("clairvoyant-never")
        return ClairvoyantScheduler, own
    if plan.rival is not None:
        return of_benches(RIVAL, plan.name), own | {
            "options": plan.rival,
            "profile": ground.profile,
        }
    if ground.grammar_s is not None:
        return GrammarScheduler, own | {"grammar_s": ground.grammar_s}
    if ground.charge_own_code and plan.batching.policy != "static":
        return watched_scheduler(), own | {"watch": Watch()}
    return VirtualScheduler, own
