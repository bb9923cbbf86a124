"""State of the fluid fleet: plain arrays, for compiled code.

The first index is a replica's slot, or a request's row. ``simulator.fleet.fluid`` advances them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile, TableCost
from simulator.fleet.traffic import Requests

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NONE = -1
ABSENT, READY, DRAINING = 0, 1, 2
IN_TIME, LATE = 0, 1


class Engine(NamedTuple):
    """One engine's abilities, and the SLA that its Governor keeps.

    A step takes ``dense(decode_weight x B + P) + per_kv_s K + per_context_s X`` seconds; ``dense``
    is linear between its knots.

    Args:
        itl_s, ttft_s: the SLA; infinite without one.
        mean_growth: mean tokens by which a running request will still grow, for memory.
    """

    knots: Floats
    knot_s: Floats
    decode_weight: float
    per_kv_s: float
    per_context_s: float
    itl_s: float
    ttft_s: float
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: float
    mean_growth: float
    max_ongoing: int


def engine_of(
    profile: StepProfile,
    sla: Sla,
    *,
    mean_growth: float,
    max_ongoing: int,
) -> Engine:
    """This accelerator under this SLA.

    Raises:
        TypeError: a step-time law that is neither a line nor a table.
    """
    cost = profile.cost
    if isinstance(cost, LinearCost):
        knots = np.array([0.0, 1e6])
        per_token_s = max(cost.per_prefill_s, 1e-12)
        knot_s = cost.fixed_s + knots * per_token_s
        weight, per_kv_s, per_context_s = (
            cost.per_decode_s / per_token_s,
            cost.per_kv_s,
            cost.per_context_s,
        )
    elif isinstance(cost, TableCost):
        knots, knot_s = np.array(cost.tokens, dtype=float), np.array(cost.dense_s)
        slope = (knot_s[-1] - knot_s[-2]) / (knots[-1] - knots[-2])
        # Measured tables fall in some places; the inverse needs them to rise.
        knot_s = np.maximum.accumulate(knot_s) + np.arange(len(knot_s)) * 1e-9
        knots, knot_s = np.append(knots, 1e6), np.append(knot_s, knot_s[-1] + slope * 1e6)
        weight, per_kv_s, per_context_s = 1.0, cost.per_kv_s, cost.per_context_s
    else:
        raise TypeError(f"{type(cost).__name__} is neither a line nor a table")
    ttft_s = np.inf if sla.ttft_ms is None else sla.ttft_ms / 1000
    return Engine(
        knots,
        knot_s,
        weight,
        per_kv_s,
        per_context_s,
        np.inf if sla.itl_s is None else sla.itl_s,
        ttft_s,
        profile.max_num_seqs,
        profile.max_num_batched_tokens,
        float(profile.kv_tokens),
        mean_growth,
        max_ongoing,
    )


class Fleet(NamedTuple):
    """All replicas of a fleet, by slot, and the state of its requests, by row.

    Args:
        status: ABSENT, READY or DRAINING.
        now_s: the slot's clock.
        decodes, held: the running batch, and its KV tokens.
        steps: decode steps that a request running since the start would have seen.
        finish_step, who: a heap of the running requests by the step that ends them.
        head, tail, behind: waiting requests, in time and late, as linked lists.
        waiting, backlog: number of waiting requests, and their prompt tokens (in time, late).
        prompt, prompt_left: the request whose prompt is computed, and its tokens left.
        arrivals: requests sent there since the slot was taken.
        since_late: prompt tokens started since the last late request's turn, its own included.
        firsts, lates: first tokens since the slot was taken, and those too late for the SLA.
        hold: first and last request before the fleet, and their number.
        done, counts: rows in order of their end; numbers of ended and of arrived requests.
    """

    status: Ints
    now_s: Floats
    decodes: Ints
    held: Floats
    steps: Floats
    finish_step: Floats
    who: Ints
    head: Ints
    tail: Ints
    behind: Ints
    waiting: Ints
    backlog: Floats
    prompt: Ints
    prompt_left: Floats
    arrivals: Ints
    since_late: Floats
    firsts: Ints
    lates: Ints
    hold: Ints
    done: Ints
    counts: Ints
    first_s: Floats
    end_s: Floats
    arrival_s: Floats
    input: Ints
    output: Ints
    draws: NDArray[np.uint64]


def make_fleet(requests: Requests, slots: int, engine: Engine, seed: int) -> Fleet:
    """An empty fleet to which these requests will come."""
    n, most = len(requests.arrival_s), engine.max_num_seqs + 1
    return Fleet(
        status=np.zeros(slots, dtype=np.int64),
        now_s=np.zeros(slots),
        decodes=np.zeros(slots, dtype=np.int64),
        held=np.zeros(slots),
        steps=np.zeros(slots),
        finish_step=np.zeros((slots, most)),
        who=np.zeros((slots, most), dtype=np.int64),
        head=np.full((slots, 2), NONE, dtype=np.int64),
        tail=np.full((slots, 2), NONE, dtype=np.int64),
        behind=np.full(n, NONE, dtype=np.int64),
        waiting=np.zeros(slots, dtype=np.int64),
        backlog=np.zeros((slots, 2)),
        prompt=np.full(slots, NONE, dtype=np.int64),
        prompt_left=np.zeros(slots),
        arrivals=np.zeros(slots, dtype=np.int64),
        since_late=np.zeros(slots),
        firsts=np.zeros(slots, dtype=np.int64),
        lates=np.zeros(slots, dtype=np.int64),
        hold=np.array([NONE, NONE, 0], dtype=np.int64),
        done=np.zeros(n, dtype=np.int64),
        counts=np.zeros(2, dtype=np.int64),
        first_s=np.full(n, np.nan),
        end_s=np.full(n, np.nan),
        arrival_s=requests.arrival_s,
        input=requests.input,
        output=requests.output,
        draws=np.array([seed * 2654435761 + 88172645463325252], dtype=np.uint64),
    )


def occupy(fleet: Fleet, slot: int, now_s: float) -> None:
    """Put a new, empty replica into this slot, ready."""
    for counts in (fleet.decodes, fleet.waiting, fleet.arrivals, fleet.firsts, fleet.lates):
        counts[slot] = 0
    for amounts in (fleet.held, fleet.steps, fleet.prompt_left, fleet.since_late):
        amounts[slot] = 0.0
    fleet.head[slot] = fleet.tail[slot] = fleet.prompt[slot] = NONE
    fleet.backlog[slot] = 0.0
    fleet.now_s[slot] = now_s
    fleet.status[slot] = READY
