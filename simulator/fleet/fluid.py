"""A fleet of replicas as fluids: between two events of a replica its batch progresses evenly.

A replica decodes one batch and computes prompts in what the SLA leaves of each step, like the
production Governor with ``adaptive``. Each request has its own first and last token. Not modelled:
single steps and their noise, preemption, the Governor's learning. The distance to the real
scheduler is tested (``test_fleet_against``).

The state is plain arrays: the first index is a replica's slot, or a request's row. Compiled: a day
of a few million requests takes seconds. All compiled functions and their constants are in this
file, as Numba only checks a function's own file for changes.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile, TableCost
from simulator.fleet.traffic import Requests
from simulator.workloads.lengths import Floats, Ints

NONE = -1
ABSENT, READY, DRAINING = 0, 1, 2
IN_TIME, LATE = 0, 1
LATE_FRAC = 0.01  # as in the controller, if the SLA leaves prompts no time
LATE_EVERY = 20  # one prompt token in 20 goes to a late request (replicas.engine.queue_order)
CHOICES = 4  # replicas drawn for a decision, as HeadroomRouter does
STALE_S = 0.5  # greatest age of the router's view of a replica: two reports a second
ALIKE, ALIKE_S = 0.05, 0.001  # waits closer than this count as equal (serve_app.routing.choice)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that makes no array; cached on disk if this folder is writable.

    Numba counts references to each array of a ``Fleet`` at every call, atomically, which took two
    thirds of a day's time. Without new arrays no count is needed (Numba's ``_nrt``); a function
    that makes one is refused at compilation.
    """
    made: Callable[..., Any] = njit(cache=os.access(Path(__file__).parent, os.W_OK), _nrt=False)(
        function
    )
    return made


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


@compiled
def _right(values: np.ndarray, at: float) -> int:
    """The index of the knot at the right end of the segment with ``at``; at most the last."""
    if len(values) == 2:  # a line
        return 1
    return min(max(int(np.searchsorted(values, at)), 1), len(values) - 1)


@compiled
def dense_s(engine: Engine, tokens: float) -> float:
    """Seconds of a step of this many tokens, except attention."""
    knots, knot_s = engine.knots, engine.knot_s
    right = _right(knots, tokens)
    t0, t1, s0, s1 = knots[right - 1], knots[right], knot_s[right - 1], knot_s[right]
    return s0 + (s1 - s0) * (max(tokens, knots[0]) - t0) / (t1 - t0)


@compiled
def _tokens_in(engine: Engine, seconds: float) -> float:
    """Tokens for a duration: the inverse of ``dense_s``."""
    knots, knot_s = engine.knots, engine.knot_s
    if seconds <= knot_s[0]:
        return 0.0
    right = _right(knot_s, seconds)
    t0, t1, s0, s1 = knots[right - 1], knots[right], knot_s[right - 1], knot_s[right]
    return t0 + (t1 - t0) * (seconds - s0) / (s1 - s0)


@compiled
def prompt_rate(engine: Engine, decodes: int, held: float, prompt: float) -> tuple[float, float]:
    """Prompt tokens per second with a batch, and the seconds of one step with them.

    A step has the time that decodes leave of the SLA; if none is left, a share ``LATE_FRAC`` of
    steps takes as many tokens as possible.
    """
    others = engine.decode_weight * decodes
    base_s = dense_s(engine, others) + engine.per_kv_s * held
    most = max(float(engine.max_num_batched_tokens - decodes), 1.0)
    context_s = engine.per_context_s * prompt / 2
    if decodes == 0 or engine.itl_s == math.inf:
        chunk = min(most, max(prompt, 1.0))
    else:
        attention_s = engine.per_kv_s * held
        left = _tokens_in(engine, engine.itl_s - attention_s) - others
        if context_s > 0 and left > 0:
            slope = (engine.itl_s - base_s) / left
            left *= slope / (slope + context_s)
        chunk = min(left, most)
        if chunk < 1.0:
            wait_s = base_s + LATE_FRAC * engine.itl_s
            return LATE_FRAC * most / wait_s, wait_s
    step_s = dense_s(engine, others + chunk) + engine.per_kv_s * held + context_s * chunk
    return chunk / step_s, step_s


@compiled
def _push(fleet: Fleet, slot: int, step: float, request: int) -> None:
    keys, who, at = fleet.finish_step[slot], fleet.who[slot], fleet.decodes[slot]
    while at > 0 and keys[(at - 1) // 2] > step:
        keys[at], who[at] = keys[(at - 1) // 2], who[(at - 1) // 2]
        at = (at - 1) // 2
    keys[at], who[at] = step, request
    fleet.decodes[slot] += 1


@compiled
def _pop(fleet: Fleet, slot: int) -> int:
    keys, who = fleet.finish_step[slot], fleet.who[slot]
    top, last = who[0], fleet.decodes[slot] - 1
    fleet.decodes[slot] = last
    key, request, at = keys[last], who[last], 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        if below + 1 < last and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], who[at] = keys[below], who[below]
        at = below
    keys[at], who[at] = key, request
    return top


@compiled
def append(fleet: Fleet, slot: int, queue: int, request: int) -> None:
    """Add a request to the waiting prompts of a replica."""
    fleet.behind[request] = NONE
    if fleet.tail[slot, queue] == NONE:
        fleet.head[slot, queue] = request
    else:
        fleet.behind[fleet.tail[slot, queue]] = request
    fleet.tail[slot, queue] = request
    fleet.waiting[slot] += 1
    fleet.backlog[slot, queue] += fleet.input[request]


@compiled
def _take(fleet: Fleet, slot: int, queue: int) -> int:
    request = fleet.head[slot, queue]
    fleet.head[slot, queue] = fleet.behind[request]
    if fleet.head[slot, queue] == NONE:
        fleet.tail[slot, queue] = NONE
    fleet.waiting[slot] -= 1
    fleet.backlog[slot, queue] -= fleet.input[request]
    return request


@compiled
def _next_queue(fleet: Fleet, slot: int, engine: Engine) -> int:
    """The queue that is served next.

    Requests too late for the SLA are deprioritized, except for one prompt token in ``LATE_EVERY``
    (``replicas.engine.queue_order``).
    """
    while fleet.head[slot, IN_TIME] != NONE:
        first = fleet.head[slot, IN_TIME]
        per_s, _ = prompt_rate(engine, fleet.decodes[slot], fleet.held[slot], fleet.input[first])
        first_token_s = fleet.now_s[slot] + fleet.input[first] / per_s
        if first_token_s <= fleet.arrival_s[first] + engine.ttft_s:
            break
        append(fleet, slot, LATE, _take(fleet, slot, IN_TIME))
    late = fleet.head[slot, LATE]
    if late == NONE:
        return IN_TIME
    turn = fleet.since_late[slot] >= LATE_EVERY * fleet.input[late]
    return LATE if turn or fleet.head[slot, IN_TIME] == NONE else IN_TIME


@compiled
def _start(fleet: Fleet, slot: int, engine: Engine) -> None:
    """Start the next prompt, if one waits and memory and slots permit it."""
    decodes = fleet.decodes[slot]
    if fleet.waiting[slot] == 0 or decodes >= engine.max_num_seqs:
        return
    queue = _next_queue(fleet, slot, engine)
    tokens = fleet.input[fleet.head[slot, queue]]
    wanted = fleet.held[slot] + tokens + engine.mean_growth * (decodes + 1)
    if decodes > 0 and wanted > engine.kv_tokens:
        return
    if queue == LATE:
        fleet.since_late[slot] = 0.0
    fleet.since_late[slot] += tokens
    fleet.prompt[slot], fleet.prompt_left[slot] = _take(fleet, slot, queue), tokens


@compiled
def _end(fleet: Fleet, request: int, now_s: float) -> None:
    fleet.end_s[request] = now_s
    fleet.done[fleet.counts[0]] = request
    fleet.counts[0] += 1


@compiled
def _first_token(fleet: Fleet, slot: int, engine: Engine, request: int, now_s: float) -> None:
    """A request's first token comes then, half a step of the batch from now."""
    fleet.first_s[request] = now_s
    fleet.firsts[slot] += 1
    if now_s > fleet.arrival_s[request] + engine.ttft_s:
        fleet.lates[slot] += 1
    if fleet.output[request] <= 1:
        _end(fleet, request, now_s)
        return
    # At its end it holds its whole length; until then one token less for each step to come.
    fleet.held[slot] += fleet.input[request] + 0.5
    _push(fleet, slot, fleet.steps[slot] + 0.5 + fleet.output[request] - 1, request)


@compiled
def advance(fleet: Fleet, slot: int, engine: Engine, until_s: float) -> None:
    """Let one replica work until then."""
    while fleet.now_s[slot] < until_s:
        if fleet.prompt[slot] == NONE:
            _start(fleet, slot, engine)
        decodes, held, prompt = fleet.decodes[slot], fleet.held[slot], fleet.prompt[slot]
        if prompt == NONE and decodes == 0:
            fleet.now_s[slot] = until_s
            return
        left_s = until_s - fleet.now_s[slot]
        per_s, to_first_s, to_end_s = 0.0, math.inf, math.inf
        if prompt != NONE:
            per_s, step_s = prompt_rate(engine, decodes, held, fleet.input[prompt])
            to_first_s = fleet.prompt_left[slot] / per_s
        else:
            step_s = dense_s(engine, engine.decode_weight * decodes) + engine.per_kv_s * held
        if decodes > 0:
            to_end_s = max(fleet.finish_step[slot, 0] - fleet.steps[slot], 0.0) * step_s
        took_s = min(left_s, to_first_s, to_end_s)
        now_s = until_s if took_s == left_s else fleet.now_s[slot] + took_s
        fleet.now_s[slot] = now_s
        fleet.steps[slot] += took_s / step_s
        fleet.held[slot] += decodes * took_s / step_s
        fleet.prompt_left[slot] -= per_s * took_s
        if took_s == to_end_s:
            request = _pop(fleet, slot)
            fleet.held[slot] -= fleet.input[request] + fleet.output[request]
            if fleet.decodes[slot] == 0:
                fleet.held[slot] = 0.0
            _end(fleet, request, now_s)
        elif took_s == to_first_s:
            fleet.prompt[slot], fleet.prompt_left[slot] = NONE, 0.0
            # Its prompt ends in the middle of a step, and its token comes with the step's end.
            _first_token(fleet, slot, engine, prompt, now_s + step_s / 2)


@compiled
def is_empty(fleet: Fleet, slot: int) -> bool:
    """Whether a replica has nothing left to do."""
    waits = fleet.waiting[slot] > 0 or fleet.prompt[slot] != NONE
    return not (waits or fleet.decodes[slot] > 0)


@compiled
def _random(fleet: Fleet, below: int) -> int:
    x = fleet.draws[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    fleet.draws[0] = x
    return int(x % np.uint64(below))


@compiled
def _is_better(wait_s: float, load: float, best_s: float, best_load: float) -> bool:
    """Whether a replica precedes the best one so far."""
    if math.isinf(best_s):
        return wait_s < best_s
    alike = abs(wait_s - best_s) <= max(ALIKE * best_s, ALIKE_S)
    return load < best_load if alike else wait_s < best_s


@compiled
def _drawn(fleet: Fleet, engine: Engine, ready: np.ndarray, k: int, now_s: float) -> int:
    """The next drawn replica, as the router sees it."""
    other = k + _random(fleet, len(ready) - k)
    ready[k], ready[other] = ready[other], ready[k]
    slot = ready[k]
    if now_s - fleet.now_s[slot] > STALE_S:
        advance(fleet, slot, engine, now_s)
    return int(slot)


@compiled
def _choose(fleet: Fleet, engine: Engine, ready: np.ndarray, prompt: float, now_s: float) -> int:
    """The drawn replica with the least wait; NONE: all are full."""
    best, best_s, best_load = NONE, math.inf, math.inf
    for k in range(min(CHOICES, len(ready))):
        slot = _drawn(fleet, engine, ready, k, now_s)
        load = fleet.decodes[slot] + fleet.waiting[slot] + (fleet.prompt[slot] != NONE)
        if load >= engine.max_ongoing:
            continue
        tokens = fleet.backlog[slot, IN_TIME] + fleet.prompt_left[slot] + prompt
        per_s, _ = prompt_rate(engine, fleet.decodes[slot], fleet.held[slot], prompt)
        wait_s = tokens / per_s
        if _is_better(wait_s, float(load), best_s, best_load):
            best, best_s, best_load = slot, wait_s, float(load)
    return best


@compiled
def _route(fleet: Fleet, engine: Engine, ready: np.ndarray, request: int, now_s: float) -> bool:
    """Send a request to a replica; False if all are full."""
    slot = _choose(fleet, engine, ready, fleet.input[request], now_s)
    if slot == NONE:
        return False
    advance(fleet, slot, engine, now_s)
    fleet.arrivals[slot] += 1
    append(fleet, slot, IN_TIME, request)
    return True


def run_until(fleet: Fleet, engine: Engine, until_s: float) -> None:
    """Let requests arrive, be routed and served until then, on the ready replicas.

    Requests for which no replica is free wait before the fleet, in order.
    """
    _run_until(fleet, engine, np.flatnonzero(fleet.status == READY), until_s)


@compiled
def _run_until(fleet: Fleet, engine: Engine, ready: np.ndarray, until_s: float) -> None:
    start_s = math.inf
    for slot in ready:
        start_s = min(start_s, fleet.now_s[slot])
    while fleet.hold[0] != NONE:
        request = fleet.hold[0]
        follows = fleet.behind[request]
        if not _route(fleet, engine, ready, request, start_s):
            break
        fleet.hold[0] = follows
        fleet.hold[2] -= 1
        if fleet.hold[0] == NONE:
            fleet.hold[1] = NONE
    while fleet.counts[1] < len(fleet.arrival_s):
        request = fleet.counts[1]
        now_s = fleet.arrival_s[request]
        if now_s >= until_s:
            break
        fleet.counts[1] += 1
        if fleet.hold[0] == NONE and _route(fleet, engine, ready, request, now_s):
            continue
        fleet.behind[request] = NONE
        if fleet.hold[1] == NONE:
            fleet.hold[0] = request
        else:
            fleet.behind[fleet.hold[1]] = request
        fleet.hold[1] = request
        fleet.hold[2] += 1
    for slot in range(len(fleet.status)):
        if fleet.status[slot] != ABSENT:
            advance(fleet, slot, engine, until_s)
        if fleet.status[slot] == DRAINING and is_empty(fleet, slot):
            fleet.status[slot] = ABSENT
