"""One replica of the fluid fleet: between two events its batch makes even progress. Compiled.

In the role PREFILL, and without decodes, it computes prompts in whole steps of its token budget,
and hands their KV over: a prompt's last step, half a step until the other engine asks for it, both
network cards in order of asking, the latency, and then as any request whose KV is there.
"""

import math

from simulator.fleet.compiled import compiled
from simulator.fleet.state import IN_TIME, LATE, NOBODY, PREFILL, Engine, Fleet
from simulator.fleet.steps import dense_s, prompt_rate

LATE_EVERY = 20  # one prompt token in so many goes to a late one (replicas.engine.queue_order)
PROMPT_ROOM = 0.05  # of the decodes of a step: what loads leave to prompts that are computed here
NO_STEP = math.inf  # of prompts alone is under way


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
def append(fleet: Fleet, slot: int, lane: int, request: int) -> None:
    """Let a request wait there for its prompt."""
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
def pool_rate(engine: Engine, prompt: float) -> float:
    """Prompt tokens per second of an engine that computes nothing else."""
    most = float(engine.max_num_batched_tokens)
    return most / (dense_s(engine, most) + engine.per_context_s * prompt / 2 * most)


@compiled
def _computes_alone(fleet: Fleet, slot: int) -> bool:
    """Whether it computes prompts with its whole token budget."""
    return fleet.role[slot] == PREFILL and fleet.decodes[slot] == 0


@compiled
def _lane(fleet: Fleet, slot: int, engine: Engine) -> int:
    """Whose turn it is, of those that wait.

    Requests too late for the SLA step aside for those in time, but for one prompt token in
    ``LATE_EVERY`` (``replicas.engine.queue_order``).
    """
    while fleet.head[slot, IN_TIME] != NOBODY:
        first = fleet.head[slot, IN_TIME]
        if _computes_alone(fleet, slot):
            per_s = pool_rate(engine, fleet.input[first])
        else:
            per_s, _ = prompt_rate(
                engine, fleet.decodes[slot], fleet.held[slot], fleet.input[first]
            )
        first_token_s = fleet.now_s[slot] + fleet.input[first] / per_s
        if first_token_s <= fleet.arrival_s[first] + engine.ttft_s:
            break
        append(fleet, slot, LATE, _take(fleet, slot, IN_TIME))
    late = fleet.head[slot, LATE]
    if late == NOBODY:
        return IN_TIME
    turn = fleet.since_late[slot] >= LATE_EVERY * fleet.input[late]
    return LATE if turn or fleet.head[slot, IN_TIME] == NOBODY else IN_TIME


@compiled
def _begin(fleet: Fleet, slot: int, lane: int) -> int:
    """The first one of a lane has its prompt computed now."""
    request = _take(fleet, slot, lane)
    if lane == LATE:
        fleet.since_late[slot] = 0.0
    fleet.since_late[slot] += fleet.input[request]
    fleet.prompt[slot], fleet.prompt_left[slot] = request, fleet.input[request]
    return request


@compiled
def _start(fleet: Fleet, slot: int, engine: Engine) -> None:
    """Let the next prompt be computed, if one waits and memory and slots hold it."""
    decodes, held = fleet.decodes[slot], fleet.held[slot]
    if fleet.waiting[slot] == 0 or decodes >= engine.max_num_seqs:
        return
    lane = _lane(fleet, slot, engine)
    request = fleet.head[slot, lane]
    kept = held + fleet.promised_tokens[slot]
    growing = decodes + fleet.promised[slot] + 1
    wanted = kept + fleet.input[request] + engine.mean_growth * growing
    if decodes > 0 and wanted > engine.kv_tokens:
        return
    _begin(fleet, slot, lane)


@compiled
def _end(fleet: Fleet, request: int, now_s: float) -> None:
    fleet.end_s[request] = now_s
    fleet.done[fleet.counts[0]] = request
    fleet.counts[0] += 1


@compiled
def _first_token(
    fleet: Fleet, slot: int, engine: Engine, request: int, now_s: float, steps: float
) -> None:
    """A request's first token comes then, so many steps of the batch from now."""
    fleet.first_s[request] = now_s
    fleet.firsts[slot] += 1
    if now_s > fleet.arrival_s[request] + engine.ttft_s:
        fleet.lates[slot] += 1
    if fleet.output[request] <= 1:
        _end(fleet, request, now_s)
        return
    # What it holds at its end is its whole length: as many tokens less as steps are to come.
    fleet.held[slot] += fleet.input[request] + 1 - steps
    _push(fleet, slot, fleet.steps[slot] + steps + fleet.output[request] - 1, request)


@compiled
def _step_s(fleet: Fleet, slot: int, engine: Engine) -> float:
    """What a step of its batch takes now, with the prompt that is computed beside."""
    decodes, held, prompt = fleet.decodes[slot], fleet.held[slot], fleet.prompt[slot]
    if prompt != NOBODY:
        return prompt_rate(engine, decodes, held, fleet.input[prompt])[1]
    return dense_s(engine, engine.decode_weight * decodes) + engine.per_kv_s * held


@compiled
def most_decodes(fleet: Fleet, slot: int, engine: Engine) -> float:
    """How many decodes a step of the SLA holds without prompts; at least one."""
    if engine.itl_s == math.inf:
        return float(engine.max_num_seqs)
    decodes = max(float(fleet.decodes[slot]), 1.0)
    each_s = dense_s(engine, engine.decode_weight * decodes) - dense_s(engine, 0.0)
    each_s = (each_s + engine.per_kv_s * fleet.held[slot]) / decodes
    room = (engine.itl_s - dense_s(engine, 0.0)) / max(each_s, 1e-12)
    return min(max(room, 1.0), float(engine.max_num_seqs))


@compiled
def _hand_over(fleet: Fleet, slot: int, engine: Engine, request: int, now_s: float) -> None:
    """Its prompt is computed here: its KV goes to the replica that has kept a place."""
    target = fleet.decode_at[request]
    fleet.prompts_for_others[slot] -= 1
    begin_s = now_s + _step_s(fleet, target, engine) / 2
    wire_s = engine.wire_s * fleet.input[request]
    fleet.sends_s[slot] = max(fleet.sends_s[slot], begin_s) + wire_s
    fleet.receives_s[target] = max(fleet.receives_s[target], begin_s) + wire_s
    there_s = max(fleet.sends_s[slot], fleet.receives_s[target]) + engine.latency_s
    fleet.there_s[request] = there_s
    before, after = NOBODY, fleet.loads[target]
    while after != NOBODY and fleet.there_s[after] <= there_s:
        before, after = after, fleet.behind[after]
    fleet.behind[request] = after
    if before == NOBODY:
        fleet.loads[target] = request
    else:
        fleet.behind[before] = request


@compiled
def _join(fleet: Fleet, slot: int, engine: Engine) -> None:
    """Those whose KV is there decode, first come first, where step and memory hold them."""
    while fleet.loads[slot] != NOBODY:
        request, decodes, now_s = fleet.loads[slot], fleet.decodes[slot], fleet.now_s[slot]
        if fleet.there_s[request] > now_s:
            return
        wanted = fleet.held[slot] + fleet.input[request] + engine.mean_growth * (decodes + 1)
        most = most_decodes(fleet, slot, engine)
        if fleet.prompt[slot] != NOBODY or fleet.waiting[slot] > 0:
            most *= 1 - PROMPT_ROOM
        full = decodes + 1 > most or wanted > engine.kv_tokens
        if decodes > 0 and full:
            return
        fleet.loads[slot] = fleet.behind[request]
        fleet.promised[slot] -= 1
        fleet.promised_tokens[slot] -= fleet.input[request]
        # The step that runs ends, and the next one computes the prompt's last token again. Steps
        # that get longer meanwhile would else count as gaps beyond the SLA.
        step_s = _step_s(fleet, slot, engine)
        if engine.itl_s != math.inf:
            step_s = max(step_s, engine.itl_s)
        first_s = now_s + 1.5 * step_s
        _first_token(fleet, slot, engine, request, first_s, 1.5)


@compiled
def _begin_step(fleet: Fleet, slot: int, engine: Engine) -> None:
    """A step of prompts alone: as many as the token budget holds, the last one in part."""
    left, context_s = float(engine.max_num_batched_tokens), 0.0
    while left > 0:
        request = fleet.prompt[slot]
        if request == NOBODY:
            if fleet.waiting[slot] == 0:
                break
            request = _begin(fleet, slot, _lane(fleet, slot, engine))
        taken = min(fleet.prompt_left[slot], left)
        left -= taken
        context_s += engine.per_context_s * fleet.input[request] / 2 * taken
        fleet.prompt_left[slot] -= taken
        if fleet.prompt_left[slot] > 0:
            break
        fleet.prompt[slot], fleet.prompt_left[slot] = NOBODY, 0.0
        fleet.behind[request] = fleet.in_step[slot]
        fleet.in_step[slot] = request
    tokens = engine.max_num_batched_tokens - left
    fleet.step_end_s[slot] = fleet.now_s[slot] + dense_s(engine, tokens) + context_s


@compiled
def _end_step(fleet: Fleet, slot: int, engine: Engine) -> None:
    now_s = fleet.now_s[slot] = fleet.step_end_s[slot]
    fleet.step_end_s[slot] = NO_STEP
    last, fleet.in_step[slot] = fleet.in_step[slot], NOBODY
    request = NOBODY
    while last != NOBODY:  # the list has the last one first
        before = fleet.behind[last]
        fleet.behind[last] = request
        request, last = last, before
    while request != NOBODY:
        later = fleet.behind[request]
        _computed(fleet, slot, engine, request, now_s, 0.0)
        request = later


@compiled
def _computed(
    fleet: Fleet, slot: int, engine: Engine, request: int, first_s: float, steps: float
) -> None:
    """A prompt is computed: its first token comes then, or it goes to who decodes it."""
    if fleet.decode_at[request] == NOBODY:
        _first_token(fleet, slot, engine, request, first_s, steps)
    else:
        _hand_over(fleet, slot, engine, request, first_s)


@compiled
def advance(fleet: Fleet, slot: int, engine: Engine, until_s: float) -> None:
    """Let one replica work until then; who hands KV to it has to have been advanced before."""
    while fleet.now_s[slot] < until_s:
        if fleet.step_end_s[slot] != NO_STEP:
            if fleet.step_end_s[slot] > until_s:
                fleet.now_s[slot] = until_s
                return
            _end_step(fleet, slot, engine)
            continue
        if fleet.loads[slot] != NOBODY:
            _join(fleet, slot, engine)
        if _computes_alone(fleet, slot):
            if fleet.prompt[slot] != NOBODY or fleet.waiting[slot] > 0:
                _begin_step(fleet, slot, engine)
                continue
        elif fleet.prompt[slot] == NOBODY:
            _start(fleet, slot, engine)
        decodes, held, prompt = fleet.decodes[slot], fleet.held[slot], fleet.prompt[slot]
        there_s = math.inf
        if fleet.loads[slot] != NOBODY and fleet.there_s[fleet.loads[slot]] > fleet.now_s[slot]:
            there_s = fleet.there_s[fleet.loads[slot]]
        if prompt == NOBODY and decodes == 0:
            fleet.now_s[slot] = min(until_s, there_s)
            continue
        left_s = min(until_s, there_s) - fleet.now_s[slot]
        per_s, to_first_s, to_end_s = 0.0, math.inf, math.inf
        if prompt != NOBODY:
            per_s, step_s = prompt_rate(engine, decodes, held, fleet.input[prompt])
            to_first_s = fleet.prompt_left[slot] / per_s
        else:
            step_s = dense_s(engine, engine.decode_weight * decodes) + engine.per_kv_s * held
        if decodes > 0:
            to_end_s = max(fleet.finish_step[slot, 0] - fleet.steps[slot], 0.0) * step_s
        took_s = min(left_s, to_first_s, to_end_s)
        now_s = min(until_s, there_s) if took_s == left_s else fleet.now_s[slot] + took_s
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
            fleet.prompt[slot], fleet.prompt_left[slot] = NOBODY, 0.0
            # Its prompt ends somewhere in a step, and its token comes with the step's end.
            _computed(fleet, slot, engine, prompt, now_s + step_s / 2, 0.5)


@compiled
def is_empty(fleet: Fleet, slot: int) -> bool:
    """Whether a replica has nothing left to do, and nobody sends it KV."""
    waits = fleet.waiting[slot] > 0 or fleet.prompt[slot] != NOBODY
    works = fleet.decodes[slot] > 0 or fleet.step_end_s[slot] != NO_STEP
    return not (waits or works or fleet.promised[slot] > 0)
