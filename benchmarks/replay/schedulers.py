"""Which scheduler runs a plan, and what it takes beside vLLM's own arguments."""

from collections.abc import Sequence
from typing import Any

from benchmarks.baselines.clairvoyant import ClairvoyantScheduler
from benchmarks.baselines.reserved import ReservedScheduler
from benchmarks.baselines.rival_scheduler import RivalScheduler
from benchmarks.virtual.corner_engines import GrammarScheduler
from benchmarks.virtual.ground import Ground
from benchmarks.virtual.plan import Plan
from benchmarks.virtual.scheduler import VirtualScheduler, watched_scheduler
from benchmarks.virtual.watch import Watch
from benchmarks.workloads.requests import Request


def scheduler_of(
    plan: Plan, ground: Ground, counted: Sequence[Request]
) -> tuple[type[VirtualScheduler], dict[str, Any]]:
    """The class, and its own arguments but for the clock.

    Args:
        counted: what the clairvoyant knows.
    """
    own: dict[str, Any] = {"speculation": plan.speculation}
    if plan.kind == "reserved":
        return ReservedScheduler, own
    if plan.kind == "clairvoyant":
        own |= {"requests": counted, "profile": ground.profile, "itl_s": plan.itl_s}
        own["preempts"] = not plan.spec.startswith("clairvoyant-never")
        return ClairvoyantScheduler, own
    if plan.rival is not None:
        return RivalScheduler, own | {"options": plan.rival, "profile": ground.profile}
    if ground.grammar_s is not None:
        return GrammarScheduler, own | {"grammar_s": ground.grammar_s}
    if ground.charge_own_code and plan.batching.policy != "static":
        return watched_scheduler(), own | {"watch": Watch()}
    return VirtualScheduler, own
