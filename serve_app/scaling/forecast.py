"""What load to provide for, when a replica that is asked for now has started.

A forecast is a base times a factor. A base is the highest of what means over a window were in the
last starts: a replica that was needed a moment ago is kept, as to give it up and have it back costs
a start as well. The factor comes from how far the base was off here in the last hour at that
distance: the least for which no more than a given share of what came was above it. That share is
what is lost, and so what an SLA bounds; how often the load was higher is not (uneven arrivals are
far above seldom, and noise is just above often). Of several bases that which costs least is taken.
"""

from collections import deque

WINDOWS_S = (10.0, 30.0, 120.0, 600.0)
HOLDS = (3.0, 1.0)  # starts
MEMORY_S = 3600.0  # of errors
EVERY_S = 5.0  # between two forecasts whose errors are looked at
# A load that is four times as high in a moment is above every forecast for as long as a start. Once
# an hour that is not provided for, nor is what came seldom besides.
RARE, RISE_S = 0.02, 30.0
NEAR_NOTHING = 0.1  # replicas: below, a ratio of two loads says little
NOTHING = 0.03  # ... and below this, nothing: a probe now and then
# Ratios that are taken to have been seen in the hour before the first.
BEFORE, BEFORE_N = (0.8, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.2), 48
CHOOSE_S = 30.0  # between two looks at which base is best
BETTER = 0.97  # of what the present one costs: for less than that none is left
# Whatever was forecast: of a load that stands so long no less than so much. After a silence of just
# the memory's time all that is remembered is how far too high the forecasts of its beginning were.
STANDS_S, LEAST_OF_IT = 30.0, 0.9
LONGEST_GAP_S = 60.0  # between two looks: after a longer one nobody knows what came


class Base:
    """The highest of means over ``window_s``, for ``hold`` starts, and its errors."""

    def __init__(self, window_s: float, hold: float, now_s: float = 0.0) -> None:
        self.window_s, self.hold = window_s, hold
        self._means: deque[tuple[float, float]] = deque()
        # When, what came / the base, and the base: of the forecasts of the last hour.
        self._known: deque[tuple[float, float, float | None]] = deque(
            (now_s - MEMORY_S * (1 - k / BEFORE_N), BEFORE[k % len(BEFORE)], None)
            for k in range(BEFORE_N)
        )

    def look(self, now_s: float, mean: float, start_s: float) -> float:
        """The base of now."""
        self._means.append((now_s, mean))
        while self._means[0][0] < now_s - self.hold * start_s:
            self._means.popleft()
        return max(value for _, value in self._means)

    def forget(self, now_s: float) -> None:
        """Nobody knows what came of late; how far the base is off is still known.

        But for what a clock that went back has left ahead of it, which would never be too old.
        """
        self._means.clear()
        while self._known and self._known[-1][0] > now_s:
            self._known.pop()

    def learn(self, now_s: float, came: float, base: float) -> None:
        """Count what came where it was forecast; what is too old is forgotten.

        Where nothing to speak of came for all of the base's time (``NOTHING``), how
        many times as much came after it says nothing of the next rise.
        """
        if base >= NOTHING:
            self._known.append((now_s, (came + NEAR_NOTHING) / (base + NEAR_NOTHING), base))
        while self._known and self._known[0][0] < now_s - MEMORY_S:
            self._known.popleft()

    @property
    def learned(self) -> int:
        """Forecasts of the last hour of which it is known what came."""
        return sum(base is not None for _, _, base in self._known)

    def factor(self, share: float, unforeseen: tuple[float, float]) -> float:
        """The least ratio above which no more than this share of what came was.

        Args:
            unforeseen: from when to when nothing of what came counts.
        """
        since_s, until_s = unforeseen
        counted = (r for at_s, r, _ in self._known if not since_s <= at_s <= until_s)
        ratios = sorted(counted) or list(BEFORE)
        rare = ratios[int((1 - RARE) * len(ratios))]
        left, above = share * sum(ratios), 0.0
        for count, ratio in enumerate(reversed(ratios)):
            if above - count * ratio > left:
                return min((above - left) / count, rare)
            above += ratio
        return rare

    def unforeseen(self, seconds: float) -> tuple[float, float]:
        """The one time so long, from when to when, in which most came that was not foreseen."""
        first: deque[tuple[float, float]] = deque()
        total = 0.0
        most, worst = 0.0, (0.0, -1.0)
        for at_s, ratio, _ in self._known:
            first.append((at_s, ratio - 1))
            total += ratio - 1
            while first[0][0] <= at_s - seconds:
                total -= first.popleft()[1]
            if total > most:
                most, worst = total, (first[0][0], at_s)
        return worst

    def cost(self, factor: float) -> float:
        """What would have been provided in the last hour on average."""
        bases = [base for _, _, base in self._known if base is not None]
        return factor * (sum(bases) / max(len(bases), 1) + NEAR_NOTHING)


class Forecast:
    """Of one load, in replicas."""

    def __init__(self) -> None:
        self._bases: list[Base] = []
        self._seen: deque[tuple[float, float]] = deque()
        self._made: deque[tuple[float, float, list[float]]] = deque()  # when, start_s, bases
        self._best, self._factor = 0, 1.0
        self._chosen_s: float | None = None

    def look(self, now_s: float, load: float, start_s: float, share: float) -> float:
        """Count the load of now.

        Args:
            start_s: of a replica: how far ahead the forecast is.
            share: of the load that may be above what is returned.

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
        provided = (values[self._best] + NEAR_NOTHING) * self._factor - NEAR_NOTHING
        return max(provided, LEAST_OF_IT * stands)

    def _choose(self, share: float, start_s: float) -> None:
        # Of the quickest base: what it did not foresee could not be.
        unforeseen = self._bases[0].unforeseen(start_s + RISE_S)
        factors = [base.factor(share, unforeseen) for base in self._bases]
        costs = [base.cost(factor) for base, factor in zip(self._bases, factors, strict=True)]
        if self._bases[0].learned < BEFORE_N:
            # After a silence the slowest would seem the cheapest, just while a load begins to rise.
            self._best = 0
        elif min(costs) < BETTER * costs[self._best]:
            self._best = costs.index(min(costs))
        self._factor = factors[self._best]

    def _forget(self, now_s: float) -> None:
        self._seen.clear()
        self._made.clear()
        for base in self._bases:
            base.forget(now_s)

    def _mean(self, since_s: float) -> float:
        values = [value for at, value in self._seen if at > since_s]
        return sum(values) / len(values)
