"""The load to provide for when a replica that is asked for now has started.

A forecast is a base and a margin. A base is the highest of the last starts' means over a window: a
replica that was needed a moment ago is kept, as it would take a start to get it back. The margin
comes from the errors of the base in the last hour at that distance: the least margin with which no
more than a given share of arrivals exceeded the sum. That share is what is lost, and so what an SLA
bounds; how often the load was higher is not (uneven arrivals are seldom far above, noise is often
just above). The cheapest of several bases is taken. The margin is in replicas and no multiple of
the base: a load that rises from nothing is many times what it was, and a fleet provided for as many
times as much would stay for an hour.
"""

from collections import deque
from collections.abc import Iterator

WINDOWS_S = (10.0, 30.0, 120.0, 600.0)
HOLDS = (3.0, 1.0)  # starts for which a base is held
LAST_START = len(WINDOWS_S)  # index of a base: the shortest window, held for one start
MEMORY_S = 3600.0  # of errors
EVERY_S = 5.0  # between two forecasts whose errors are recorded
# A load that quadruples at once exceeds every forecast for a start. Once an hour that is not
# provided for, nor are other errors as rare as RARE.
RARE, RISE_S = 0.02, 30.0
NOTHING = 0.03  # replicas; a smaller load is a probe now and then
# The past that is assumed if nothing is known, as multiples of the present load.
BEFORE, BEFORE_N = (0.8, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.2), 48
CHOOSE_S = 30.0  # between two choices of the best base
# Another base is taken if it costs less than this share of the present one, counting BETTER_BY
# more.
BETTER, BETTER_BY = 0.97, 0.1
# Lower bound: of a load that stood for STANDS_S at least this share. After a silence of just the
# memory's time, only the errors of its beginning are remembered, all far too high forecasts.
STANDS_S, LEAST_OF_IT = 30.0, 0.9
# Upper bound as a multiple of the forecast if many are late: a burst ends before a replica starts.
MOST_OF_IT = 1.5
LONGEST_GAP_S = 60.0  # between two readings; after a longer one the load in between is unknown


class Base:
    """The highest of means over ``window_s`` in ``hold`` starts, and its errors.

    Args:
        now_s: of the first reading.
    """

    def __init__(self, window_s: float, hold: float, now_s: float = 0.0) -> None:
        self.window_s, self.hold = window_s, hold
        self._means: deque[tuple[float, float]] = deque()
        # Time, load, base: of the last hour. Without a base the load is a multiple of the present
        # one.
        self._known: deque[tuple[float, float, float | None]] = deque(
            (now_s - MEMORY_S * (1 - k / BEFORE_N), BEFORE[k % len(BEFORE)], None)
            for k in range(BEFORE_N)
        )

    def look(self, now_s: float, mean: float, start_s: float) -> float:
        """The present base."""
        self._means.append((now_s, mean))
        while self._means[0][0] < now_s - self.hold * start_s:
            self._means.popleft()
        return max(value for _, value in self._means)

    def forget(self, now_s: float) -> None:
        """Forget recent loads, which have a gap; the errors of the base stay.

        Errors from after ``now_s`` (the clock went back) are dropped, as they would never be too
        old.
        """
        self._means.clear()
        while self._known and self._known[-1][0] > now_s:
            self._known.pop()

    def learn(self, now_s: float, came: float, base: float) -> None:
        """Count the load that came against its forecast; old errors are dropped.

        If there was no load (``NOTHING``) for all of the base's time, what came after it says
        nothing of the next rise.
        """
        if base >= NOTHING:
            self._known.append((now_s, came, base))
        while self._known and self._known[0][0] < now_s - MEMORY_S:
            self._known.popleft()

    @property
    def learned(self) -> int:
        """Forecasts of the last hour whose load is known."""
        return sum(base is not None for *_, base in self._known)

    def margin(self, share: float, unforeseen: tuple[float, float]) -> float:
        """The least margin above the base that no more than this share of the load exceeded.

        Args:
            unforeseen: begin and end of a time that does not count.
        """
        since_s, until_s = unforeseen
        counted = [
            (more, came) for at_s, more, came in self._errors() if not since_s <= at_s <= until_s
        ] or [((times - 1) * self._load, times * self._load) for times in BEFORE]
        errors = sorted((more for more, _ in counted), reverse=True)
        rare = errors[int(RARE * len(errors))]
        left, above = share * sum(came for _, came in counted), 0.0
        for count, more in enumerate(errors):
            if above - count * more > left:
                return min((above - left) / count, rare)
            above += more
        return min((above - left) / len(errors), rare)

    def unforeseen(self, seconds: float) -> tuple[float, float]:
        """The time span of this length with the most unforeseen load: begin and end."""
        first: deque[tuple[float, float]] = deque()
        total = 0.0
        most, worst = 0.0, (0.0, -1.0)
        for at_s, more, _ in self._errors():
            first.append((at_s, more))
            total += more
            while first[0][0] <= at_s - seconds:
                total -= first.popleft()[1]
            if total > most:
                most, worst = total, (first[0][0], at_s)
        return worst

    def cost(self, margin: float) -> float:
        """Mean of the replicas that would have been provided in the last hour."""
        bases = [base for *_, base in self._known if base is not None]
        return sum(max(base + margin, 0.0) for base in bases) / max(len(bases), 1)

    @property
    def _load(self) -> float:
        """The load that assumed errors are multiples of: the present one, at least one replica."""
        return max(self._means[-1][1] if self._means else 0.0, 1.0)

    def _errors(self) -> Iterator[tuple[float, float, float]]:
        """Time, load above the base, load."""
        load = self._load
        for at_s, came, base in self._known:
            if base is None:
                yield at_s, (came - 1) * load, came * load
            else:
                yield at_s, came - base, came


class Forecast:
    """The forecast of one load, in replicas."""

    def __init__(self) -> None:
        self._bases: list[Base] = []
        self._seen: deque[tuple[float, float]] = deque()
        self._made: deque[tuple[float, float, list[float]]] = deque()  # when, start_s, bases
        self._best, self._margin = 0, 0.0
        self._chosen_s: float | None = None

    def look(
        self, now_s: float, load: float, start_s: float, share: float, many_late: bool = False
    ) -> float:
        """Count the present load.

        Args:
            start_s: of a replica: how far ahead the forecast is.
            share: of the load that may exceed the result.
            many_late: at present. Then the result is at least the highest load of the last start
                (mean over the shortest window), up to ``MOST_OF_IT`` of the usual result.

        Returns:
            The load to provide for.
        """
        if not self._bases:
            self._bases = [Base(window_s, hold, now_s) for hold in HOLDS for window_s in WINDOWS_S]
        if self._seen and not 0 <= now_s - self._seen[-1][0] <= LONGEST_GAP_S:
            self._forget(now_s)
        self._seen.append((now_s, load))
        while self._seen[0][0] <= now_s - max(WINDOWS_S):
            self._seen.popleft()
        while self._made and self._made[0][0] + self._made[0][1] <= now_s:
            for base, was in zip(self._bases, self._made.popleft()[2], strict=True):
                base.learn(now_s, load, was)
        means = {window_s: self._mean(now_s - window_s) for window_s in WINDOWS_S}
        values = [base.look(now_s, means[base.window_s], start_s) for base in self._bases]
        if not self._made or now_s - self._made[-1][0] >= EVERY_S:
            self._made.append((now_s, start_s, values))
        if self._chosen_s is None or not 0 <= now_s - self._chosen_s < CHOOSE_S:
            self._chosen_s = now_s
            self._choose(share, start_s)
        stands = min(seen for at, seen in self._seen if at > now_s - STANDS_S)
        foreseen = max(values[self._best] + self._margin, LEAST_OF_IT * stands)
        if many_late:
            # The margin is that of the last hour, and the present load is not like it: arrivals
            # that are suddenly uneven keep their mean, and are late all the same.
            foreseen = max(foreseen, min(values[LAST_START], MOST_OF_IT * foreseen))
        return foreseen

    def _choose(self, share: float, start_s: float) -> None:
        # Of the quickest base: what it did not foresee could not be foreseen.
        unforeseen = self._bases[0].unforeseen(start_s + RISE_S)
        margins = [base.margin(share, unforeseen) for base in self._bases]
        costs = [base.cost(margin) for base, margin in zip(self._bases, margins, strict=True)]
        if self._bases[0].learned < BEFORE_N:
            # After a silence the slowest base seems cheapest, just as a load begins to rise.
            self._best = 0
        elif min(costs) + BETTER_BY < BETTER * (costs[self._best] + BETTER_BY):
            self._best = costs.index(min(costs))
        self._margin = margins[self._best]

    def _forget(self, now_s: float) -> None:
        self._seen.clear()
        self._made.clear()
        for base in self._bases:
            base.forget(now_s)

    def _mean(self, since_s: float) -> float:
        values = [value for at, value in self._seen if at > since_s]
        return sum(values) / len(values)
