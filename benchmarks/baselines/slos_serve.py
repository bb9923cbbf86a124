"""``slos_serve``: SLOs-Serve, which admits as many requests as it can serve by their deadlines.

With one class of requests, no speculation and one engine its rules are:

    a prompt is due at arrival + TTFT agreed, token i of its answer i ITLs later
    step <= max(min of the decodes' slack, min ITL)
    r(d)  = prompt tokens/s beside d decodes, in steps of one ITL
    tokens left at the deadline of the n-th prompt, k of the new ones admitted:
        left(n, k) = left(n - 1, k or k - 1) + r(decodes before it) x time since the deadline before
                     - prompt tokens, if it is admitted or runs;  >= 0, and KV memory for its answer

The dynamic program goes through the prompts by deadline and keeps the best left(n, k) for each k;
the largest k is admitted. Steps serve the decodes whose turn it is (a decode that is an ITL ahead
waits), then admitted prompts by deadline, then, with what the step has left, all others as they
came ("best effort"). No more run than decodes fit into an ITL. An admitted request stays so.

Source: Chen et al., "SLOs-Serve: Optimized Serving of Multi-SLO LLMs", arXiv 2504.08784;
gulang2019/SLOServe at d1736d19: csrc/adm_ctrl_scheduler.cc (``_admission_control_dp``,
``ARBatchPlanner::plan``) and SLOsServe/scheduler/schedule_algs.py. Left out: several tiers of ITL,
speculation, stages of one request, routes to other replicas, and that best effort loses its memory
to who is admitted. There the frontier of (requests, memory, tokens) is kept; here, of equal k, the
state with the most tokens. There r(d) is computed for each d; here it falls on a straight line
from now to the decodes that fill an ITL. Where running prompts are late there, nothing is
admitted; here what is late is owed by all that come after.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.chunks import (
    Deadlines,
    in_order,
    most_within,
    prompts_of,
    served,
    shared_within,
    step_time,
)
from benchmarks.baselines.options import SlosServeOptions
from benchmarks.baselines.rival import (
    Columns,
    Floats,
    Known,
    Mask,
    Moves,
    Seen,
    Unmoved,
    decodes_first,
)

LATEST_S = 86_400.0  # for a class without a time to first token


@dataclass(frozen=True, slots=True)
class Work:
    """A prompt that is to be computed by its deadline.

    Args:
        due_s: from now.
        left: tokens to compute.
        memory: tokens of KV memory that it has yet to get.
        new: it may be left out.
    """

    id: str
    due_s: float
    left: int
    memory: int
    new: bool


class SlosServe(Unmoved):
    """Admits by a dynamic program, then serves by deadline."""

    def __init__(self, options: SlosServeOptions, known: Known) -> None:
        self._reserved_tokens = options.reserved_tokens
        self._deadlines = Deadlines(known, options.ttft_s, gaps=options.slack == "gaps")
        self._step_s = step_time(known, options.model, options.margin)
        self._admitted: set[str] = set()

    def decide(self, seen: Seen) -> Moves:
        running, most = seen.running, seen.engine.max_num_batched_tokens
        waiting = seen.first_waiting(seen.waiting)
        itls_s = self._deadlines.itl_s(running)
        itl_s = min((*itls_s.tolist(), *self._deadlines.itl_s(waiting).tolist()), default=math.inf)
        if math.isinf(itl_s):
            return Moves(most, seen.room, decodes_first(running))
        decoding, due_s = running.decoding, self._deadlines.due_s(running)
        waiting_due_s = self._deadlines.due_s(waiting)
        decodes = np.flatnonzero(decoding)
        held = float(running.computed[decodes].sum())
        each = held / len(decodes) if len(decodes) else 1.0
        cap = max(most_within(most, lambda d: self._step_s(d, d * each, 0, 0.0), itl_s), 1)
        slots = min(seen.room, max(cap - len(running), 0))

        def step_s(prefill: int, context: float) -> float:
            return self._step_s(len(decodes), held, prefill, context)

        free = max(most - len(decodes), 0)
        prefill = most_within(free, lambda n: step_s(n, n * n / 2), itl_s)
        rates = np.linspace(prefill / itl_s, 0.0, max(cap - len(decodes), 0) + 1)
        places = np.flatnonzero(~decoding).tolist()
        work = self._work(running, due_s - seen.now_s, places, waits=False)
        work += self._work(waiting, waiting_due_s - seen.now_s, range(len(waiting)), waits=True)
        self._admitted = most_admitted(work, rates, slots, seen.kv_free_tokens)

        within_s = max(float(due_s[decodes].min(initial=math.inf)) - seen.now_s, itl_s)
        turn = decodes[due_s[decodes] - itls_s[decodes] < seen.now_s + within_s].tolist()
        last = {*running.ids, *waiting.ids} - self._admitted
        # One that was admitted and lost its memory must not keep those that run from theirs.
        fit = np.flatnonzero(waiting.left <= seen.kv_free_tokens).tolist()
        prompts = in_order(
            prompts_of(running, due_s, places, last, runs=True)
            + prompts_of(waiting, waiting_due_s, fit, last, runs=False)
        )
        free, longest = max(most - len(turn), 0), seen.engine.long_prompt_tokens
        shares = shared_within(prompts, free, slots, longest, step_s, within_s)
        return served(seen, turn, prompts, shares, len(turn) + sum(shares))

    def _work(
        self, some: Columns, due_s: Floats, places: Iterable[int], *, waits: bool
    ) -> list[Work]:
        """The admitted of these, and those who may be: who waits and is not late."""
        answers = np.minimum(some.allowed, self._reserved_tokens)
        memory = np.maximum(some.prompt + answers - some.computed, 0).tolist()
        due, left = np.minimum(due_s, LATEST_S).tolist(), some.left.tolist()
        found = []
        for k in places:
            admitted = some.ids[k] in self._admitted
            if admitted or (waits and due[k] >= 0):
                found.append(Work(some.ids[k], due[k], left[k], memory[k], not admitted))
        return found


def most_admitted(work: Iterable[Work], rates: Floats, slots: int, memory: int) -> set[str]:
    """Who is admitted: all that are not new, and of the new as many as can be served.

    Args:
        rates: prompt tokens/s beside the decodes of now, one more, two more, ...
        slots: how many of the new ones, at most.
        memory: free tokens of KV memory.
    """
    left = np.full(slots + 1, -math.inf)  # by how many of the new ones are admitted
    left[0] = 0.0
    used = np.zeros(slots + 1)
    more = np.arange(slots + 1)
    before_s = 0.0
    taken: list[tuple[Work, Mask | None]] = []
    for one in sorted(work, key=lambda one: one.due_s):
        left += rates[np.minimum(more, len(rates) - 1)] * max(one.due_s - before_s, 0.0)
        before_s = max(one.due_s, before_s)
        if not one.new:
            left -= one.left
            used += one.memory
            more += 1
            # If what was promised before cannot be kept, that is no reason against k = 0.
            left[left < min(left[0], 0.0)] = -math.inf
            taken.append((one, None))
            continue
        left_with, used_with = left[:-1] - one.left, used[:-1] + one.memory
        take = (left_with >= 0) & (used_with <= memory) & (left_with > left[1:])
        left[1:][take], used[1:][take] = left_with[take], used_with[take]
        taken.append((one, take))
    k = int(np.flatnonzero(np.isfinite(left))[-1])
    admitted = set()
    for one, with_one in reversed(taken):
        if with_one is None:
            admitted.add(one.id)
        elif k and with_one[k - 1]:
            admitted.add(one.id)
            k -= 1
    return admitted
