"""``qoserve``: QoServe (Niyama), chunks from the least slack of the decodes, prompts by deadline.

    chunk  = max { n in {128, 256, 512, ... 2048, 2552} : 1.2 T(decodes, n - decodes) <= slack }
    slack  = min over decodes of due - now,   due of token i = arrival + max(TTFT_0, TTFT) + i ITL
    order of prompts: (relegated, arrival + TTFT_0 + 8 ms x remaining prompt tokens)

with TTFT_0 the time to first token agreed, and T a step's time as profiled. The least n is taken
where none fits. Prompts that run and those that wait stand in one order, so a short one overtakes
a long one that is half computed. One that waits is relegated, for good, once now + remaining /
throughput is past its TTFT_0; throughput is an average (0.995) of prompt tokens per second of the
steps with prompts, 8,500 to begin with. With less than 32,000 tokens of KV memory free, n is one
of 128, 256, 384, 512. Decodes come first.

Source: microsoft/sarathi-serve, branch niyama_asplos2026, at 72339db5:
sarathi/core/scheduler/deadline_scheduler.py and sarathi/core/datatypes/sequence.py; Goel et al.,
"QoServe: Breaking the Silos of LLM Inference Serving", ASPLOS 2026 (arXiv 2503.22562). Its linear
model of T is of one card and model; here T is the profile's. There token i is due one ITL later.
"""

import math

import numpy as np

from benchmarks.baselines.chunks import Prompt, in_order, prompts_of, served, shared
from benchmarks.baselines.options import QoserveOptions
from benchmarks.baselines.rival import Columns, Floats, Known, Moves, Seen, Unmoved
from controller.records import StepSample

LARGEST = 2552
LAST_MULTIPLE = 2048
LOW_MEMORY = (128, 256, 384, 512)
FIRST_THROUGHPUT = 8500.0  # prompt tokens/s
KEPT = 0.995  # of the throughput, a step with prompts


class Qoserve(Unmoved):
    """Sizes the chunk by slack and serves prompts by deadline."""

    def __init__(self, options: QoserveOptions, known: Known) -> None:
        self._options, self._known = options, known
        self._ttft_s = options.ttft_s if known.ttft_s is None else known.ttft_s
        multiples = range(options.token_step, LAST_MULTIPLE + 1, options.token_step)
        least = options.least_tokens
        self.budgets = (least, *(n for n in (*multiples, LARGEST) if n > least))
        self._throughput = FIRST_THROUGHPUT
        self._relegated: set[str] = set()

    def observe(self, sample: StepSample, running: int, now_s: float) -> None:
        if sample.prefill_tokens and sample.duration_s > 0:
            seen = sample.prefill_tokens / sample.duration_s
            self._throughput = KEPT * self._throughput + (1 - KEPT) * seen

    def decide(self, seen: Seen) -> Moves:
        decodes = np.flatnonzero(seen.running.decoding).tolist()
        waiting = seen.first_waiting(seen.waiting)
        prompts = self._prompts(seen, waiting)
        if not prompts:
            return Moves(seen.engine.max_num_batched_tokens, 0, decodes)
        # Every decode has its token, whatever the budget that was found.
        budget = max(self._budget(seen, prompts[0].context), len(decodes))
        shares = shared(prompts, budget - len(decodes), seen.room)
        return served(seen, decodes, prompts, shares, budget)

    def _prompts(self, seen: Seen, waiting: Columns) -> list[Prompt]:
        """All that are not computed, in the order of service."""
        self._relegate(seen, waiting)
        running = seen.running
        places = np.flatnonzero(~running.decoding).tolist()
        found = prompts_of(running, self._due_s(running), places, runs=True)
        found += prompts_of(
            waiting, self._due_s(waiting), range(len(waiting)), self._relegated, runs=False
        )
        return in_order(found)

    def _due_s(self, some: Columns) -> Floats:
        weight_s = self._options.ms_per_token / 1000
        due: Floats = some.arrival_s + self._agreed_s(some) + weight_s * some.left
        return due

    def _agreed_s(self, some: Columns) -> Floats | float:
        """The time to first token of each, where classes have their own."""
        return self._ttft_s if some.ttft_s is None else some.ttft_s

    def _relegate(self, seen: Seen, waiting: Columns) -> None:
        needs_s = waiting.left / self._throughput
        late = seen.now_s + needs_s > waiting.arrival_s + self._agreed_s(waiting)
        late &= waiting.generated == 0  # a preempted one had its first token
        here = set(waiting.ids)
        self._relegated &= here
        self._relegated.update(waiting.ids[k] for k in np.flatnonzero(late).tolist())

    def _budget(self, seen: Seen, context: int) -> int:
        decoding = seen.running.decoding
        decodes, kv = int(decoding.sum()), int(seen.running.computed[decoding].sum())
        low = seen.kv_free_tokens < self._options.low_memory_tokens
        budgets = LOW_MEMORY if low else self.budgets
        slack_s = self._slack_s(seen)
        best = budgets[0]
        for budget in budgets[1:]:
            prefill = max(budget - decodes, 0)
            step_s = self._known.step_s(decodes, kv, prefill, prefill * (context + prefill / 2))
            if self._options.margin * step_s > slack_s:
                break
            best = budget
        return best

    def _slack_s(self, seen: Seen) -> float:
        """Seconds until the first of the decodes is late; infinite if none decodes."""
        running = seen.running
        agreed_s = self._known.itl_s if running.itl_s is None else running.itl_s
        mask = running.decoding
        if agreed_s is None or not mask.any():
            return math.inf
        itl_s = agreed_s * self._options.itl_frac
        if self._options.slack == "gaps":
            due_s = running.last_token_s + itl_s
        else:
            begin_s = np.fmax(running.arrival_s + self._agreed_s(running), running.first_token_s)
            with np.errstate(
                invalid="ignore"
            ):  # no bound, and no token yet: not a number, as ahead
                due_s = begin_s + itl_s * running.generated
        # A step ahead, the token before may not be back yet: NaN, and the others count.
        least_s = float(np.fmin.reduce(due_s[mask])) - seen.now_s
        return math.inf if math.isnan(least_s) else least_s
