"""``past_future``: LightLLM's scheduler, which starts what KV memory will hold at its peak.

    need = max over i of  left_i x i + held_1 + ... + held_i     (left_1 >= left_2 >= ...)

over the running requests and the one that may start: once the i with most left have i x left_i
more, all others are gone. The first of the queue starts while need < (1 - reserved) x KV memory.
``left`` = steps of prefill + expected output - generated - 1 + 6. The expected output is, by

- distribution (the paper): of a running one drawn from the outputs of the last 200 requests that
  are longer than what it has generated (between two of them, its own beginning and ``max_tokens``,
  evenly), of one that may start any of the last 200; in so many lists that there are 200 draws,
  five at most, and the worst list counts;
- average (as shipped): min(max_tokens, max(1.1 x generated, m)) with m a moving average, from
  2,048, of outputs of at least 64, by 0.5 at first and 0.8 times as much each time down to 0.04;
  with more than ``busy_frac`` of KV memory in use, max_tokens.

The step's budget is the engine's own, decodes and prompts as in vLLM.

Source: Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025,
arXiv 2507.10150; ModelTC/lightllm, lightllm/server/router/req_queue/chunked_prefill/impl.py at
e30b7ee6, lightllm/server/core/objs/req.py at 08284523 (``get_tuple_tokens``), and its
``PastFutureQueue`` and ``RouterStatics`` (router/stats.py at ba9ade2b), whose older default, busy
from an empty memory on, counts every request with max_tokens: ``busy_frac=0``.
"""

from collections import deque

import numpy as np

from benchmarks.baselines.options import PastFutureOptions
from benchmarks.baselines.rival import Columns, Floats, Ints, Moves, Seen, Unmoved

FIRST_AVERAGE, LEAST_OUTPUT = 2048, 64
FIRST_WEIGHT, WEIGHT_CUT, LEAST_WEIGHT = 0.5, 0.8, 0.04
GROWTH = 1.1  # of what is generated already: the least that is expected by the average


class MovingAverage:
    """The shipped one: quick at first, then slow.

    Attributes:
        tokens: of an output, whole.
    """

    def __init__(self) -> None:
        self.tokens = FIRST_AVERAGE
        self._weight = FIRST_WEIGHT

    def add(self, output_tokens: int) -> None:
        """A request ended."""
        new = max(output_tokens, LEAST_OUTPUT)
        mixed = int(self.tokens * (1 - self._weight) + new * self._weight)
        self.tokens = max(mixed, LEAST_OUTPUT)
        self._weight = max(LEAST_WEIGHT, self._weight * WEIGHT_CUT)


def peak(held: Ints, left: Ints) -> int:
    """Tokens in memory at the fullest time, if none is added.

    Args:
        held, left: of each, tokens now and steps until it ends, in each of which it has one more.
    """
    if not len(held):
        return 0
    order = np.argsort(-left, kind="stable")
    return int((left[order] * np.arange(1, len(left) + 1) + np.cumsum(held[order])).max())


class PastFuture(Unmoved):
    """Starts the first of the queue while the forecast fits."""

    def __init__(self, options: PastFutureOptions) -> None:
        self._options = options
        self.average = MovingAverage()
        guesses = [options.first_guess] * max(options.window // 2, 1)
        self.outputs: deque[int] = deque(guesses, maxlen=options.window)
        self._rng = np.random.default_rng(0)

    def finished(self, output_tokens: int) -> None:
        self.outputs.append(output_tokens)
        self.average.add(output_tokens)

    def decide(self, seen: Seen) -> Moves:
        return Moves(seen.engine.max_num_batched_tokens, self._starts(seen) if seen.room else 0)

    def _starts(self, seen: Seen) -> int:
        engine, running, options = seen.engine, seen.running, self._options
        drawn = options.lengths == "distribution"
        most = (1 - options.reserved_frac if drawn else 1) * engine.kv_tokens
        lists = 1
        if drawn and len(running):
            lists = min(options.most_lists, options.draws // len(running) + 1)
        used = engine.kv_tokens - seen.kv_free_tokens
        busy = used >= options.busy_frac * engine.kv_tokens
        chunk = engine.max_num_batched_tokens
        outputs = [self._expected(running, busy, starts=False) for _ in range(lists)]
        batches = [self._forecast(running, output, chunk) for output in outputs]
        waiting, starts = Columns.none(), 0
        while starts < seen.room:
            if starts == len(waiting):
                waiting = seen.first_waiting(min(2 * starts + 4, seen.room))
            one = waiting.part(starts)
            for k, (held, left) in enumerate(batches):
                more_held, more_left = self._forecast(
                    one, self._expected(one, busy, starts=True), chunk
                )
                batches[k] = np.append(held, more_held), np.append(left, more_left)
            if max(peak(*batch) for batch in batches) >= most:
                break
            starts += 1
        return starts

    def _forecast(self, some: Columns, outputs: Ints, chunk: int) -> tuple[Ints, Ints]:
        held = np.maximum(some.tokens, some.computed) + 1
        left = -(-some.left // chunk) + outputs - some.generated - 1
        return held, np.maximum(left, 0) + self._options.added_tokens

    def _expected(self, some: Columns, busy: bool, *, starts: bool) -> Ints:
        """Output tokens of each in all, at most what it may generate."""
        if self._options.lengths == "average":
            if busy:
                return some.allowed
            grown = (GROWTH * some.generated).astype(np.int64)
            return np.minimum(some.allowed, np.maximum(grown, self.average.tokens))
        past = np.sort(np.array(self.outputs))
        if starts:
            drawn = self._rng.choice(past, len(some))
        else:
            drawn = draw_longer(past, some.generated, some.allowed, self._rng.random(len(some)))
        return np.minimum(some.allowed, np.maximum(some.generated, drawn))


def draw_longer(past: Ints, generated: Ints, allowed: Ints, u: Floats) -> Ints:
    """Outputs at the probabilities ``u`` among those of the past that are longer than generated.

    Straight lines between what is generated, the longer ones of the past (ascending) and what is
    allowed, each step between two of them as likely as the others.
    """
    begin = np.searchsorted(past, generated, side="right")
    longer = len(past) - begin
    at = u * (longer + 1)
    k = at.astype(np.int64)
    last = len(past) - 1
    low = np.where(k == 0, generated, past[np.clip(begin + k - 1, 0, last)])
    high = np.where(k >= longer, allowed, past[np.clip(begin + k, 0, last)])
    return np.rint(low + (high - low) * (at - k)).astype(np.int64)
