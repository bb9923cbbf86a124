"""A fleet of replicas as fluids: between two events of a replica its batch makes even progress.

A replica decodes one batch and computes prompts in what the SLA leaves of each step, as the
production Governor with ``adaptive`` has it; a request's first token and its last are known each.
What is left out: single steps and their noise, preemption, the Governor's learning. How far it is
from the real scheduler is tested (``test_fleet_against``). Compiled: a day of a few million
requests takes seconds.

Where some replicas have the role PREFILL, each request takes the way on which its first token is
forecast to come sooner, through one of them or direct, as ``serve_app.routing.ways`` has it.
"""

import math

import numpy as np

from simulator.fleet.compiled import compiled
from simulator.fleet.replica import advance, append, is_empty, most_decodes, pool_rate
from simulator.fleet.state import (
    ABSENT,
    DRAINING,
    IN_TIME,
    MIXED,
    NOBODY,
    PREFILL,
    READY,
    Engine,
    Fleet,
)
from simulator.fleet.steps import prompt_rate

CHOICES = 4  # replicas drawn for a decision, as HeadroomRouter does
STALE_S = 0.5  # how old what the router sees of a replica may be: two reports a second
ALIKE, ALIKE_S = 0.05, 0.001  # waits closer than this are the same (serve_app.routing.choice)
HANDOVER_STEPS = 1.5  # controller.roles


@compiled
def _random(fleet: Fleet, below: int) -> int:
    x = fleet.draws[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    fleet.draws[0] = x
    return int(x % np.uint64(below))


@compiled
def _is_better(wait_s: float, filled: float, best_s: float, best_filled: float) -> bool:
    """Whether a replica is to be taken before the best one so far."""
    if math.isinf(best_s):
        return wait_s < best_s
    alike = abs(wait_s - best_s) <= max(ALIKE * best_s, ALIKE_S)
    return filled < best_filled if alike else wait_s < best_s


@compiled
def _drawn(fleet: Fleet, engine: Engine, ready: np.ndarray, k: int, now_s: float) -> int:
    """The next one of those that are drawn, as the router sees it."""
    other = k + _random(fleet, len(ready) - k)
    ready[k], ready[other] = ready[other], ready[k]
    slot = ready[k]
    if now_s - fleet.now_s[slot] > STALE_S:
        advance(fleet, slot, engine, now_s)
    return int(slot)


@compiled
def _filled(fleet: Fleet, slot: int) -> int:
    own = fleet.decodes[slot] + fleet.waiting[slot] + (fleet.prompt[slot] != NOBODY)
    return int(own + fleet.promised[slot])


@compiled
def _room_s(fleet: Fleet, slot: int, engine: Engine, prompt: float) -> float:
    """How long until step and memory hold one more, those included that are promised a place."""
    most, decodes = most_decodes(fleet, slot, engine), fleet.decodes[slot]
    excess = max(_filled(fleet, slot) + 1 - most, 0.0)
    if decodes > 0:
        tokens = fleet.backlog[slot, IN_TIME] + fleet.promised_tokens[slot] + prompt
        grows = engine.mean_growth * (_filled(fleet, slot) + 1)
        short = fleet.held[slot] + tokens + grows - engine.kv_tokens
        excess = max(excess, short / (fleet.held[slot] / decodes))
    return excess * 2 * engine.mean_growth * engine.itl_s / most if excess > 0 else 0.0


@compiled
def _choose(
    fleet: Fleet, engine: Engine, ready: np.ndarray, prompt: float, now_s: float, pool: int
) -> tuple[int, float]:
    """The one of a few drawn replicas where a request waits least, and how long; NOBODY: all full.

    Args:
        pool: how many replicas compute prompts for others: then what decodes here waits for room.
    """
    best, best_s, best_filled = NOBODY, math.inf, math.inf
    for k in range(min(CHOICES, len(ready))):
        slot = _drawn(fleet, engine, ready, k, now_s)
        filled = _filled(fleet, slot)
        if filled >= engine.max_ongoing:
            continue
        tokens = fleet.backlog[slot, IN_TIME] + fleet.prompt_left[slot] + prompt
        # Beside those, too, whose KV is on its way: they decode before a prompt is computed.
        decodes = fleet.decodes[slot] + fleet.promised[slot]
        per_s, _ = prompt_rate(engine, decodes, fleet.held[slot], prompt)
        wait_s = tokens / per_s
        if pool > 0:
            wait_s += _room_s(fleet, slot, engine, prompt)
        if _is_better(wait_s, float(filled), best_s, best_filled):
            best, best_s, best_filled = slot, wait_s, float(filled)
    return best, best_s


@compiled
def _choose_prefill(
    fleet: Fleet, engine: Engine, pool: np.ndarray, prompt: float, now_s: float
) -> tuple[int, float]:
    """The one of a few drawn ones that computes a new prompt first, and how long it takes."""
    best, best_s, best_left = NOBODY, math.inf, math.inf
    for k in range(min(CHOICES, len(pool))):
        slot = _drawn(fleet, engine, pool, k, now_s)
        if _filled(fleet, slot) >= engine.max_ongoing:
            continue
        left = fleet.backlog[slot, IN_TIME] + fleet.prompt_left[slot]
        if fleet.decodes[slot] > 0:
            per_s, _ = prompt_rate(engine, fleet.decodes[slot], fleet.held[slot], prompt)
        else:
            per_s = pool_rate(engine, prompt)
            if fleet.step_end_s[slot] != math.inf:
                left += max(fleet.step_end_s[slot] - now_s, 0.0) * per_s
        wait_s = (left + prompt) / per_s
        if _is_better(wait_s, left, best_s, best_left):
            best, best_s, best_left = slot, wait_s, left
    return best, best_s


@compiled
def _choose_place(
    fleet: Fleet, engine: Engine, ready: np.ndarray, prompt: float, sent_s: float, now_s: float
) -> tuple[int, float]:
    """The one of a few drawn ones that can decode a request soonest whose KV is sent then."""
    best, best_s, best_filled = NOBODY, math.inf, math.inf
    for k in range(min(CHOICES, len(ready))):
        slot = _drawn(fleet, engine, ready, k, now_s)
        filled = _filled(fleet, slot)
        if filled >= engine.max_ongoing:
            continue
        wait_s = _room_s(fleet, slot, engine, prompt)
        wait_s += max(fleet.booked_s[slot] - sent_s, 0.0)
        if _is_better(wait_s, float(filled), best_s, best_filled):
            best, best_s, best_filled = slot, wait_s, float(filled)
    return best, best_s


@compiled
def _route(
    fleet: Fleet,
    engine: Engine,
    ready: np.ndarray,
    pool: np.ndarray,
    request: int,
    now_s: float,
    direct: bool,
) -> bool:
    """Send a request on the way on which it waits least; False where all replicas are full."""
    if len(ready) == 0:
        return False
    tokens = fleet.input[request]
    here, here_s = NOBODY, math.inf
    if direct or len(pool) == 0:
        here, here_s = _choose(fleet, engine, ready, tokens, now_s, len(pool))
    if len(pool) == 0:
        if here == NOBODY:
            return False
        _send(fleet, engine, here, request, now_s)
        return True
    source, computed_s = _choose_prefill(fleet, engine, pool, tokens, now_s)
    target, through_s = NOBODY, math.inf
    if source != NOBODY:
        sent_s = max(now_s + computed_s, fleet.booked_s[source])
        target, wait_s = _choose_place(fleet, engine, ready, tokens, sent_s, now_s)
        handover_s = engine.latency_s + HANDOVER_STEPS * engine.itl_s
        through_s = sent_s - now_s + wait_s + engine.wire_s * tokens + handover_s
    if here != NOBODY and (target == NOBODY or here_s < through_s):
        _send(fleet, engine, here, request, now_s)
        return True
    if target == NOBODY:
        return False
    fleet.decode_at[request] = target
    fleet.prompts_for_others[source] += 1
    fleet.promised[target] += 1
    fleet.promised_tokens[target] += tokens
    for slot in (source, target):
        begin_s = max(fleet.booked_s[slot], now_s + computed_s)
        fleet.booked_s[slot] = begin_s + engine.wire_s * tokens
    _send(fleet, engine, source, request, now_s)
    return True


@compiled
def _send(fleet: Fleet, engine: Engine, slot: int, request: int, now_s: float) -> None:
    advance(fleet, slot, engine, now_s)
    fleet.arrivals[slot] += 1
    append(fleet, slot, IN_TIME, request)


def run_until(fleet: Fleet, engine: Engine, until_s: float, *, direct: bool = True) -> None:
    """Let requests come, be routed and be served until then, on the replicas that are ready.

    Requests that find none, or only full ones, are held before the fleet, in order.

    Args:
        direct: replicas that decode compute prompts, too, where that is sooner; without it every
            prompt goes to one in the role PREFILL where there is one.
    """
    ready = fleet.status == READY
    mixed, pool = (np.flatnonzero(ready & (fleet.role == role)) for role in (MIXED, PREFILL))
    _run_until(fleet, engine, mixed, pool, until_s, direct)


@compiled
def _send_kv(fleet: Fleet, engine: Engine, now_s: float) -> None:
    """Let all work until then that compute prompts for others."""
    for slot in range(len(fleet.status)):
        if fleet.prompts_for_others[slot] > 0:
            advance(fleet, slot, engine, now_s)


@compiled
def _run_until(
    fleet: Fleet, engine: Engine, ready: np.ndarray, pool: np.ndarray, until_s: float, direct: bool
) -> None:
    start_s = math.inf
    for slot in ready:
        start_s = min(start_s, fleet.now_s[slot])
    while fleet.hold[0] != NOBODY:
        request = fleet.hold[0]
        follows = fleet.behind[request]
        if not _route(fleet, engine, ready, pool, request, start_s, direct):
            break
        fleet.hold[0] = follows
        fleet.hold[2] -= 1
        if fleet.hold[0] == NOBODY:
            fleet.hold[1] = NOBODY
    while fleet.counts[1] < len(fleet.arrival_s):
        request = fleet.counts[1]
        now_s = fleet.arrival_s[request]
        if now_s >= until_s:
            break
        fleet.counts[1] += 1
        _send_kv(fleet, engine, now_s)
        if fleet.hold[0] == NOBODY and _route(fleet, engine, ready, pool, request, now_s, direct):
            continue
        fleet.behind[request] = NOBODY
        if fleet.hold[1] == NOBODY:
            fleet.hold[0] = request
        else:
            fleet.behind[fleet.hold[1]] = request
        fleet.hold[1] = request
        fleet.hold[2] += 1
    _send_kv(fleet, engine, until_s)
    for slot in range(len(fleet.status)):
        if fleet.status[slot] != ABSENT:
            advance(fleet, slot, engine, until_s)
        if fleet.status[slot] == DRAINING and is_empty(fleet, slot):
            fleet.status[slot] = ABSENT
