"""``gradient2``: Netflix's concurrency limit, on the time of a step.

    g = clip(tolerance long / short, 0.5, 1)
    limit <- (1 - s) limit + s (g limit + queue),   inside [least, most]

once a window, with short = the mean step time of the window and long = its exponential mean with
weight 2 / (n + 1) (the mean of the first ten windows before that). Where long is more than twice
short, long is cut by a twentieth; where fewer than half of the limit run, the limit stays. The
limit is the cap on running requests; the budget is the engine's own.

Source: Netflix/concurrency-limits, Gradient2Limit.java at f2528def and ExpAvgMeasurement.java at
11c70606, in a window of a second (WindowedLimit). It knows no SLA: what step is too long follows
from what steps took before.
"""

from benchmarks.baselines.options import Gradient2Options
from benchmarks.baselines.rival import Moves, Seen, Unmoved
from controller.records import StepSample

WARM_UP = 10  # windows whose plain mean the long average is
LEAST_GRADIENT = 0.5
DRIFT, CUT = 2.0, 0.95  # a long average of so many times the short one is cut to this


class Gradient2(Unmoved):
    """Lowers the cap while steps take longer than they used to.

    Attributes:
        limit: running requests, not rounded.
    """

    def __init__(self, options: Gradient2Options, max_num_seqs: int) -> None:
        self._options = options
        self._most = min(options.most, max_num_seqs)
        self._least = min(options.least, self._most)
        self.limit = float(min(max(options.first, self._least), self._most))
        self._long_s, self._windows = 0.0, 0
        self._since_s: float | None = None
        self._sum_s, self._steps, self._running = 0.0, 0, 0

    def decide(self, seen: Seen) -> Moves:
        starts = min(int(self.limit) - len(seen.running), seen.room)
        return Moves(seen.engine.max_num_batched_tokens, starts)

    def observe(self, sample: StepSample, running: int, now_s: float) -> None:
        if self._since_s is None:
            self._since_s = now_s - sample.duration_s
        self._sum_s += sample.duration_s
        self._steps += 1
        self._running = max(self._running, running)
        if now_s - self._since_s >= self._options.window_s:
            self.update(self._sum_s / self._steps, self._running)
            self._since_s = now_s
            self._sum_s, self._steps, self._running = 0.0, 0, 0

    def update(self, short_s: float, running: int) -> None:
        """A window is over: its mean step time, and the most that ran in it."""
        options = self._options
        if short_s <= 0:
            return
        if self._windows < WARM_UP:
            self._windows += 1
            self._long_s += (short_s - self._long_s) / self._windows
        else:
            self._long_s += 2 / (options.long_window + 1) * (short_s - self._long_s)
        long_s = self._long_s
        if long_s / short_s > DRIFT:
            self._long_s *= CUT
        if running < self.limit / 2:
            return
        gradient = max(LEAST_GRADIENT, min(1.0, options.tolerance * long_s / short_s))
        new = gradient * self.limit + options.queue
        new = (1 - options.smoothing) * self.limit + options.smoothing * new
        self.limit = min(max(new, float(self._least)), float(self._most))
