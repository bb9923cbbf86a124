"""Offline tokens/s and preemptions where KV memory is what is short.

No SLA, all requests at t = 0, KV memory so small that vLLM's default loses requests to it. Every
policy serves the same draw of a seed, one policy after the other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import Summary, summarise
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.max_tokens import SPREAD, MaxTokens
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

PROFILE = "paper-fig3"
REQUESTS = 1500
PILOT_REQUESTS = 500  # enough to tell settings apart; the best one runs with every seed
Found = dict[str, tuple[float, float]]  # by spec: output tokens/s, preemptions per request


@dataclass(frozen=True, slots=True)
class Case:
    """Workloads, an equal share of the requests each, one after the other.

    Args:
        max_tokens: what clients allow; an exact one tells every policy the answer's length.
    """

    name: str
    kv_tokens: int
    workloads: tuple[str, ...]
    requests: int = REQUESTS
    max_tokens: MaxTokens = SPREAD


AMPLE = (
    Case("fixed-128-128", 30_000, ("fixed:128,128",)),
    Case("fixed-191-382", 60_000, ("fixed:191,382",)),
    Case("exponential-191-382", 60_000, ("exponential:191,382",)),
    Case("azure-conversation", 100_000, ("azure-2023-conversation",)),
    Case("heavy-tail", 50_000, ("lognormal:256,256,1.8",)),
    Case(
        "shifting",
        60_000,
        ("fixed:128,64", "exponential:191,382", "fixed:256,512", "azure-2023-conversation"),
    ),
)
TIGHT = (
    Case("fixed-64-300-6k", 6_000, ("fixed:64,300",), 300, 4096),
    Case("fixed-191-382-40k", 40_000, ("fixed:191,382",), 400),
    Case("fixed-128-128-20k", 20_000, ("fixed:128,128",), 400),
    Case("fixed-191-382-exact", 60_000, ("fixed:191,382",), REQUESTS, "exact"),
)
CASES = AMPLE + TIGHT


@dataclass(frozen=True, slots=True)
class Task:
    """One draw of requests for some policies."""

    case: Case
    seed: int
    specs: tuple[str, ...]
    requests: int


def is_ours(task: Task) -> bool:
    """Whether one of the policies is of this project."""
    return any(spec.partition(":")[0] in ("adaptive", "paper") for spec in task.specs)


def draw(case: Case, requests: int, seed: int) -> tuple[Request, ...]:
    """The requests of a case, all at t = 0."""
    each = requests // len(case.workloads)
    return tuple(
        request
        for index, name in enumerate(case.workloads)
        for request in draw_requests(
            load_workload(name), each, math.inf, None, seed + 1000 * index, case.max_tokens
        )
    )


def seeds_of(case: Case, requests: int, seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds that differ: one where nothing is random."""
    first = draw(case, requests, seeds[0])
    return (seeds[0], *(s for s in seeds[1:] if draw(case, requests, s) != first))


def offline(task: Task) -> Found:
    """Tokens/s and preemptions per request of each policy."""
    profile = load_profile(PROFILE).with_kv_tokens(task.case.kv_tokens)
    requests = draw(task.case, task.requests, task.seed)
    found = {}
    for spec in task.specs:
        trace = replay(requests, parse_policy(spec, Sla(), engine_of(profile)), Ground(profile))
        summary: Summary = summarise(spec, trace, Sla())
        found[spec] = summary.output_tokens_per_s, summary.preemptions / summary.requests
    return found
