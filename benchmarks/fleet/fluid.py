"""A fleet of replicas as fluids: between two events of a replica its batch makes even progress.

A replica decodes one batch and computes prompts in what the SLA leaves of each step, as the
production Governor with ``adaptive`` has it; a request's first token and its last are known each.
What is left out: single steps and their noise, preemption, the Governor's learning. How far it is
from the real scheduler is measured (``benchmarks.fleet.against``). Compiled: a day of a few million
requests takes seconds.
"""

import math

import numpy as np

from benchmarks.fleet.compiled import compiled
from benchmarks.fleet.state import (
    ABSENT,
    DRAINING,
    IN_TIME,
    LATE,
    NOBODY,
    READY,
    Engine,
    Fleet,
)
from benchmarks.fleet.steps import dense_s, prompt_rate

CHOICES = 4  # replicas drawn for a decision, as HeadroomRouter does
STALE_S = 0.5  # how old what the router sees of a replica may be: two reports a second
ALIKE, ALIKE_S = 0.05, 0.001  # waits closer than this are the same (serve_app.routing.choice)
LATE_EVERY = 20  # one start in so many goes to a late one (replicas.queue_order)


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
def _append(fleet: Fleet, slot: int, lane: int, request: int) -> None:
    fleet.behind[request] = NOBODY
    if fleet.tail[slot, lane] == NOBODY:
        fleet.head[slot, lane] = request
    else:
        fleet.behind[fleet.tail[slot, lane]] = request
    fleet.tail[slot, lane] = request
    fleet.waiting[slot] += 1
    fleet.backlog[slot, lane] += fleet.input[request]


@compiled
def _take(fleet: Fleet, slot: int, lane: int) -> int:
    request = fleet.head[slot, lane]
    fleet.head[slot, lane] = fleet.behind[request]
    if fleet.head[slot, lane] == NOBODY:
        fleet.tail[slot, lane] = NOBODY
    fleet.waiting[slot] -= 1
    fleet.backlog[slot, lane] -= fleet.input[request]
    return request


@compiled
def _start(fleet: Fleet, slot: int, engine: Engine) -> None:
    """Let the next prompt be computed, if one waits and memory and slots hold it.

    Who is too late for the SLA steps aside for those in time, but for one start in
    ``LATE_EVERY`` (``replicas.queue_order``).
    """
    decodes, held = fleet.decodes[slot], fleet.held[slot]
    if fleet.waiting[slot] == 0 or decodes >= engine.max_num_seqs:
        return
    while fleet.head[slot, IN_TIME] != NOBODY:
        first = fleet.head[slot, IN_TIME]
        per_s, _ = prompt_rate(engine, decodes, held, fleet.input[first])
        first_token_s = fleet.now_s[slot] + fleet.input[first] / per_s
        if first_token_s <= fleet.arrival_s[first] + engine.ttft_s:
            break
        _append(fleet, slot, LATE, _take(fleet, slot, IN_TIME))
    lane = IN_TIME
    turn = fleet.starts[slot] % LATE_EVERY == LATE_EVERY - 1
    if fleet.head[slot, LATE] != NOBODY and (turn or fleet.head[slot, IN_TIME] == NOBODY):
        lane = LATE
    request = fleet.head[slot, lane]
    wanted = held + fleet.input[request] + engine.mean_growth * (decodes + 1)
    if decodes > 0 and wanted > engine.kv_tokens:
        return
    fleet.starts[slot] += 1
    fleet.prompt[slot] = _take(fleet, slot, lane)
    fleet.prompt_left[slot] = fleet.input[request]


@compiled
def _end(fleet: Fleet, request: int, now_s: float) -> None:
    fleet.end_s[request] = now_s
    fleet.done[fleet.counts[0]] = request
    fleet.counts[0] += 1


@compiled
def advance(fleet: Fleet, slot: int, engine: Engine, until_s: float) -> None:
    """Let one replica work until then."""
    while fleet.now_s[slot] < until_s:
        if fleet.prompt[slot] == NOBODY:
            _start(fleet, slot, engine)
        decodes, held, prompt = fleet.decodes[slot], fleet.held[slot], fleet.prompt[slot]
        if prompt == NOBODY and decodes == 0:
            fleet.now_s[slot] = until_s
            return
        left_s = until_s - fleet.now_s[slot]
        per_s, to_first_s, to_end_s = 0.0, math.inf, math.inf
        if prompt != NOBODY:
            per_s, step_s = prompt_rate(engine, decodes, held, fleet.input[prompt])
            to_first_s = fleet.prompt_left[slot] / per_s
        else:
            step_s = dense_s(engine, engine.decode_weight * decodes) + engine.per_kv_s * held
        if decodes > 0:
            to_end_s = max(fleet.finish_step[slot, 0] - fleet.steps[slot], 0.0) * step_s
        took_s = min(left_s, to_first_s, to_end_s)
        fleet.now_s[slot] = until_s if took_s == left_s else fleet.now_s[slot] + took_s
        fleet.steps[slot] += took_s / step_s
        fleet.held[slot] += decodes * took_s / step_s
        fleet.prompt_left[slot] -= per_s * took_s
        now_s = fleet.now_s[slot]
        if took_s == to_end_s:
            request = _pop(fleet, slot)
            fleet.held[slot] -= fleet.input[request] + fleet.output[request]
            if fleet.decodes[slot] == 0:
                fleet.held[slot] = 0.0
            _end(fleet, request, now_s)
        elif took_s == to_first_s:
            fleet.prompt[slot], fleet.prompt_left[slot] = NOBODY, 0.0
            # Its prompt ends somewhere in a step, and its token comes with the step's end.
            fleet.first_s[prompt] = now_s + step_s / 2
            fleet.firsts[slot] += 1
            if fleet.first_s[prompt] > fleet.arrival_s[prompt] + engine.ttft_s:
                fleet.lates[slot] += 1
            if fleet.output[prompt] <= 1:
                _end(fleet, prompt, now_s + step_s / 2)
            else:
                fleet.held[slot] += fleet.input[prompt] + 1
                _push(fleet, slot, fleet.steps[slot] + fleet.output[prompt] - 0.5, prompt)


@compiled
def _random(fleet: Fleet, below: int) -> int:
    x = fleet.draws[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    fleet.draws[0] = x
    return int(x % np.uint64(below))


@compiled
def _choose(fleet: Fleet, engine: Engine, ready: np.ndarray, prompt: float, now_s: float) -> int:
    """Of a few drawn replicas, where a request waits least; NOBODY where all are full."""
    best, best_s, best_filled = NOBODY, math.inf, math.inf
    for k in range(min(CHOICES, len(ready))):
        other = k + _random(fleet, len(ready) - k)
        ready[k], ready[other] = ready[other], ready[k]
        slot = ready[k]
        if now_s - fleet.now_s[slot] > STALE_S:
            advance(fleet, slot, engine, now_s)
        filled = fleet.decodes[slot] + fleet.waiting[slot] + (fleet.prompt[slot] != NOBODY)
        if filled >= engine.max_ongoing:
            continue
        tokens = fleet.backlog[slot, IN_TIME] + fleet.prompt_left[slot] + prompt
        per_s, _ = prompt_rate(engine, fleet.decodes[slot], fleet.held[slot], prompt)
        wait_s = tokens / per_s
        alike = abs(wait_s - best_s) <= max(ALIKE * best_s, ALIKE_S) if best != NOBODY else False
        if best == NOBODY or (filled < best_filled if alike else wait_s < best_s):
            best, best_s, best_filled = slot, wait_s, float(filled)
    return best


@compiled
def _send(fleet: Fleet, engine: Engine, slot: int, request: int, now_s: float) -> None:
    advance(fleet, slot, engine, now_s)
    fleet.arrivals[slot] += 1
    _append(fleet, slot, IN_TIME, request)


def run_until(fleet: Fleet, engine: Engine, until_s: float) -> None:
    """Let requests come, be routed and be served until then, on the replicas that are ready.

    Who finds none, or only full ones, is held before the fleet, in order.
    """
    _run_until(fleet, engine, np.flatnonzero(fleet.status == READY), until_s)


@compiled
def _run_until(fleet: Fleet, engine: Engine, ready: np.ndarray, until_s: float) -> None:
    start_s = math.inf
    for slot in ready:
        start_s = min(start_s, fleet.now_s[slot])
    while fleet.hold[0] != NOBODY and len(ready) > 0:
        request = fleet.hold[0]
        slot = _choose(fleet, engine, ready, fleet.input[request], start_s)
        if slot == NOBODY:
            break
        fleet.hold[0] = fleet.behind[request]
        fleet.hold[2] -= 1
        if fleet.hold[0] == NOBODY:
            fleet.hold[1] = NOBODY
        _send(fleet, engine, slot, request, start_s)
    while fleet.counts[1] < len(fleet.arrival_s):
        request = fleet.counts[1]
        now_s = fleet.arrival_s[request]
        if now_s >= until_s:
            break
        fleet.counts[1] += 1
        slot = NOBODY
        if len(ready) > 0 and fleet.hold[0] == NOBODY:
            slot = _choose(fleet, engine, ready, fleet.input[request], now_s)
        if slot != NOBODY:
            _send(fleet, engine, slot, request, now_s)
            continue
        fleet.behind[request] = NOBODY
        if fleet.hold[1] == NOBODY:
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


@compiled
def is_empty(fleet: Fleet, slot: int) -> bool:
    """Whether a replica has nothing left to do."""
    return fleet.decodes[slot] == 0 and fleet.waiting[slot] == 0 and fleet.prompt[slot] == NOBODY
