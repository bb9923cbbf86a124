"""What load to provide for, when a replica that is asked for now has started.

A forecast is a base and a margin above it. A base is the highest of what means over a window were
in the last starts: a replica that was needed a moment ago is kept, as to give it up and have it
back costs a start as well. The margin comes from how far the base was off here in the last hour at
that distance: the least for which no more than a given share of what came was above it. That share
is what is lost, and so what an SLA bounds; how often the load was higher is not (uneven arrivals
are far above seldom, and noise is just above often). Of several bases that which costs least is
taken. The margin is in replicas, no multiple of the base: a load that rises from nothing is many
times what it was, and a fleet that provided for as many times as much would stand for an hour.
"""

from collections import deque
from collections.abc import Iterator

WINDOWS_S = (10.0, 30.0, 120.0, 600.0)
HOLDS = (3.0, 1.0)  # starts
LAST_START = len(WINDOWS_S)  # of the bases: the shortest window, held for one start
MEMORY_S = 3600.0  # of errors
EVERY_S = 5.0  # between two forecasts whose errors are looked at
# A load that is four times as high in a moment is above every forecast for as long as a start. Once
# an hour that is not provided for, nor is what came seldom besides.
RARE, RISE_S = 0.02, 30.0
NOTHING = 0.03  # replicas: below, what comes is a probe now and then
# What is taken to have come if nothing is known, as multiples of what comes now.
BEFORE, BEFORE_N = (0.8, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.2), 48
CHOOSE_S = 30.0  # between two looks at which base is best
# Of what the present one costs, and this many replicas: for less than that none is left.
BETTER, BETTER_BY = 0.97, 0.1
# Whatever was forecast: of a load that stands so long no less than so much. After a silence of just
# the memory's time all that is remembered is how far too high the forecasts of its beginning were.
STANDS_S, LEAST_OF_IT = 30.0, 0.9
# If many are late, of what was forecast: a clump is over before a replica has started.
MOST_OF_IT = 1.5
LONGEST_GAP_S = 60.0  # between two looks: after a longer one what came is unknown


class Base:
    """The highest of means over ``window_s``, for ``hold`` starts, and its errors.

    Args:
        now_s: of the first look.
    """

    def __init__(self, window_s: float, hold: float, now_s: float = 0.0) -> None:
        self.window_s, self.hold = window_s, hold
        self._means: deque[tuple[float, float]] = deque()
        # When, what came, and the base: of the last hour. Without a base: multiples of the load.
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
        """What came of late is unknown; how far the base is off is still known.

        But for what a clock that went back has left ahead of it, which would never be too old.
        """
        self._means.clear()
        while self._known and self._known[-1][0] > now_s:
            self._known.pop()

    def learn(self, now_s: float, came: float, base: float) -> None:
        """Count what came where it was forecast; what is too old is forgotten.

        If nothing to speak of came for all of the base's time (``NOTHING``), how
        much more came after it says nothing of the next rise.
        """
        if base >= NOTHING:
            self._known.append((now_s, came, base))
        while self._known and self._known[0][0] < now_s - MEMORY_S:
            self._known.popleft()

    @property
    def learned(self) -> int:
        """Forecasts of the last hour of which it is known what came."""
        return sum(base is not None for *_, base in self._known)

    def margin(self, share: float, unforeseen: tuple[float, float]) -> float:
        """Replicas above the base above which no more than this share of what came was; the least.

        Args:
            unforeseen: from when to when nothing of what came counts.
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
        """The one time so long, from when to when, in which most came that was not foreseen."""
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
        """Replicas that would have been provided in the last hour on average."""
        bases = [base for *_, base in self._known if base is not None]
        return sum(max(base + margin, 0.0) for base in bases) / max(len(bases), 1)

    @property
    def _load(self) -> float:
        """What usual errors are taken to be of: what comes now, and one replica at least."""
        return max(self._means[-1][1] if self._means else 0.0, 1.0)

    def _errors(self) -> Iterator[tuple[float, float, float]]:
        """When, how much more came than the base, and what came."""
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
        """Count the load of now.

        Args:
            start_s: of a replica: how far ahead the forecast is.
            share: of the load that may be above what is returned.
            many_late: now. No less is returned than came in the last start at its highest (mean
                over the shortest window), up to ``MOST_OF_IT`` of what would be returned else.

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
            # The margin is of the last hour, and what comes now is not like it: arrivals that are
            # suddenly uneven have the mean they had, and are late all the same.
            foreseen = max(foreseen, min(values[LAST_START], MOST_OF_IT * foreseen))
        return foreseen

    def _choose(self, share: float, start_s: float) -> None:
        # Of the quickest base: what it did not foresee could not be.
        unforeseen = self._bases[0].unforeseen(start_s + RISE_S)
        margins = [base.margin(share, unforeseen) for base in self._bases]
        costs = [base.cost(margin) for base, margin in zip(self._bases, margins, strict=True)]
        if self._bases[0].learned < BEFORE_N:
            # After a silence the slowest would seem the cheapest, just while a load begins to rise.
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
