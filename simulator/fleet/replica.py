"""One replica of the fluid fleet: between two events its batch makes even progress. Compiled."""

import math

from simulator.fleet.compiled import compiled
from simulator.fleet.state import IN_TIME, LATE, NONE, Engine, Fleet
from simulator.fleet.steps import dense_s, prompt_rate

LATE_EVERY = 20  # one prompt token in 20 goes to a late request (replicas.engine.queue_order)


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
