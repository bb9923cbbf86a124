"""A fleet of replicas as fluids: between two events of a replica its batch progresses evenly.

A replica decodes one batch and computes prompts in what the SLA leaves of each step, like the
production Governor with ``adaptive``. Each request has its own first and last token. Not modelled:
single steps and their noise, preemption, the Governor's learning. The distance to the real
scheduler is tested (``test_fleet_against``). Compiled: a day of a few million requests takes
seconds.
"""

import math

import numpy as np

from simulator.fleet.compiled import compiled
from simulator.fleet.replica import advance, append, is_empty
from simulator.fleet.state import (
    ABSENT,
    DRAINING,
    IN_TIME,
    NONE,
    READY,
    Engine,
    Fleet,
)
from simulator.fleet.steps import prompt_rate

CHOICES = 4  # replicas drawn for a decision, as HeadroomRouter does
STALE_S = 0.5  # greatest age of the router's view of a replica: two reports a second
ALIKE, ALIKE_S = 0.05, 0.001  # waits closer than this count as equal (serve_app.routing.choice)


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
