"""From one reading of a fleet to a number of replicas, with the reason in words.

Too few replicas cost every client; one too many costs its rent. So replicas are added at once, as
many as the queue will need when they run. They are removed only if the others carry the load that
is provided for (``forecast`` includes the recent past, as a removed replica takes a start to come
back), or, without a known capacity, the highest load of several starts.
"""

from serve_app.scaling.demand import (
    Load,
    hardly_more,
    idle,
    left_outside,
    load_of,
    replicas_behind,
    replicas_for_queue,
    replicas_needed,
    whole,
    with_some_gone,
    with_spare,
)
from serve_app.scaling.error_budget import FIRST, ErrorBudget
from serve_app.scaling.forecast import Forecast
from serve_app.scaling.reading import FleetReading
from serve_app.scaling.reasons import OUT_OF_REACH, Decision, Reason
from serve_app.scaling.recent import Recent
from serve_app.scaling.starts import Starts

SUSTAINED_S = 30.0  # load that lasted this long is expected to last until a replica has started
REACH_FOR_S = 60.0  # time in reach after which an SLA counts again; it may flap
LONGEST_GAP_S = 60.0  # between two readings; after a longer one the past is unknown
LATE_FRAC = 0.007  # share of requests that may be late; steers the load that is provided for
QUEUE_FACTOR = 2.0  # a queue above this multiple of the caps asks for one more replica,
QUEUE_FOR_S = 30.0  # if it lasted this long
PEAK_S = 300.0  # no replica is removed until this much is known,
PEAK_STARTS = 3.0  # and this many starts of a replica


class Scaler:
    """Decides for one deployment; remembers its recent past. ``ScalingConfig`` has the units."""

    def __init__(
        self,
        target_utilization: float,
        drain_s: float,
        queue_factor: float = QUEUE_FACTOR,
        queue_for_s: float = QUEUE_FOR_S,
        peak_s: float = PEAK_S,
        peak_starts: float = PEAK_STARTS,
        start_s: float = 60.0,
        late_frac: float = LATE_FRAC,
        at_risk: float = 0.0,
    ) -> None:
        self._rho, self._at_risk = target_utilization, at_risk
        self._drain_s = drain_s
        self._queue_factor = queue_factor
        self._queue_for_s = queue_for_s
        self._peak_s, self._peak_starts = peak_s, peak_starts
        self._starts = Starts(start_s)
        self._allowance = ErrorBudget(late_frac)
        self._forecast = Forecast()  # of arrivals, in replicas
        self._arriving = Recent()  # replicas for arrivals
        self._wanted = Recent()  # replicas for arrivals and the queue
        self._deep_wanted = Recent()  # replicas for a deep queue
        self._waiting = Recent()  # requests waiting in the engines
        self._excess_per_s = Recent()  # arrivals above the fleet's capacity
        self._since_s: float | None = None  # start of the known past
        self._looked_s = 0.0
        self._deep = Recent()  # waiting requests, while too many
        self._out_s: float | None = None  # when the SLA was last out of reach

    def decide(self, reading: FleetReading) -> Decision:
        """The number of replicas for ``reading``; never raises."""
        now_s = reading.now_s
        self._starts.observe(now_s, reading.current, reading.target, reading.names)
        if self._since_s is None or not 0 <= now_s - self._looked_s <= LONGEST_GAP_S:
            self._since_s = now_s  # what came in between is unknown
        self._looked_s = now_s
        load = load_of(reading)
        if idle(reading):
            return self._when_idle(reading, load)
        if not load.caps and load.capacity_per_s is None:
            return self._when_unknown(reading, load)
        if self._unreachable(load, now_s):
            return self._stay(reading, load, "out_of_reach", OUT_OF_REACH)
        return self._by_load(reading, load)

    def _by_load(self, reading: FleetReading, load: Load) -> Decision:
        now_s = reading.now_s
        arriving, wanted, words, reason = self._worth(reading, load)
        lasting = reading.minimum
        arriving, wanted = (
            with_some_gone(each, lasting, self._at_risk) for each in (arriving, wanted)
        )
        if self._at_risk and wanted > lasting:
            words += f"; {self._at_risk:.0%} of those above {lasting} may be gone"
        keep_s = self._past_s()
        self._arriving.add(now_s, arriving, keep_s)
        self._wanted.add(now_s, wanted, keep_s)
        self._deep_wanted.add(now_s, 0.0, keep_s)
        # Replicas out of reach count in Ray Serve's total, but carry nothing inside the SLA.
        up = max(whole(wanted), 1) + load.out_of_reach
        if self._hardly_more(reading, load, wanted):
            up = reading.target
            if reading.minimum <= up <= reading.maximum:
                words += f"; too little above {up} for one more replica"
        if self._stays_deep(load, now_s) and up <= reading.current:
            up, reason = reading.current + 1, "deep_queue"
            # It was needed whatever capacity says, and counts in the past like any other.
            self._deep_wanted.add(now_s, up - load.out_of_reach, keep_s)
            words = (
                f"{load.waiting:.0f} requests wait"
                + (f" and {load.refused_per_s:.1f}/s are refused" if load.refused_per_s else "")
                + f", more than {self._queue_factor:g} times the caps, for"
                f" {self._queue_for_s:g} s: one more replica than now"
            )
        if up >= reading.target:
            return self._decision(reading, load, up, reason, words)
        # A forecast includes the recent past; a queue does not.
        hold_s = keep_s if load.capacity_per_s is None else 0.0
        down, about = self._fewest(reading, load, hold_s)
        if down >= reading.target:
            return self._decision(reading, load, reading.target, "peak", f"{words}; {about}")
        if down > up:
            reason, words = "peak", f"{words}; {about}"
        return self._decision(reading, load, down, reason, words)

    def _worth(self, reading: FleetReading, load: Load) -> tuple[float, float, str, Reason]:
        """Replicas for arrivals alone, for arrivals and the queue, the words and the reason."""
        capacity = load.capacity_per_s
        if capacity is None:
            in_system = load.running + load.waiting
            worth = replicas_for_queue(in_system, load.mean_cap, self._rho)
            if not load.waiting:  # a cap that does not bind asks for no more replicas
                worth = min(worth, float(reading.target))
            words = f"{in_system:.0f} requests, {load.mean_cap:.0f} may run on a replica"
            return worth, worth, words, "queue"
        next_s, start_s = self._starts.next_s(reading.now_s), self._starts.takes_s
        coming = self._provide(reading, load.demand_per_s / capacity)
        excess_per_s = load.queueing_per_s - load.healthy * capacity
        grows = next_s * self._grows_per_s(excess_per_s, reading)
        behind = self._behind(load, capacity, grows, reading.now_s)
        wanted = behind + replicas_needed(
            coming * capacity,
            capacity,
            target_utilization=self._rho,
            outside=left_outside(load, grows),
            drain_s=max(self._drain_s, start_s),
        )
        words = (
            f"{load.demand_per_s:.1f} requests/s arrive, {coming * capacity:.1f} are planned"
            f" for; a replica carries {capacity:.1f} (+-{load.error_frac:.0%}) inside the SLA,"
            f" of which {self._rho:.0%} is used"
        )
        if load.waiting >= 1:
            words += (
                f"; {load.waiting:.0f} wait, and in {next_s:.0f} s, when the next replica runs,"
                f" {behind:.1f} replicas are still busy with them"
            )
        return coming / self._rho, wanted, words, "capacity"

    def _provide(self, reading: FleetReading, load: float) -> float:
        """The load to provide for when a replica asked for now runs, in replicas."""
        now_s = reading.now_s
        share, start_s = self._allowance.look(now_s, reading.replicas), self._starts.takes_s
        return self._forecast.look(now_s, load, start_s, share, self._allowance.many_late)

    def _behind(self, load: Load, capacity: float, grows: float, now_s: float) -> float:
        """Replicas still busy with their queues when the next replica runs.

        Args:
            grows: growth of the queue until then, requests; below 0: it shrinks.
        """
        start_s, waiting = max(self._starts.takes_s, SUSTAINED_S), sum(load.behind)
        self._waiting.add(now_s, waiting, 2 * start_s)
        # A queue that did not shrink during a start will not during the next, whatever capacity
        # says.
        since_s = now_s - start_s
        known = bool(waiting) and self._waiting.spans(since_s)
        stays = self._waiting.lowest(since_s) / waiting if known else 0.0
        more = grows / max(load.healthy, 1)
        left = [max(each + more, each * stays) for each in load.behind]
        return replicas_behind(left, capacity, self._drain_s)

    def _grows_per_s(self, excess_per_s: float, reading: FleetReading) -> float:
        """Growth of the queue until the next replica runs, requests/s; below 0: it shrinks."""
        since_s = reading.now_s - SUSTAINED_S
        self._excess_per_s.add(reading.now_s, excess_per_s, 2 * SUSTAINED_S)
        lowest = self._excess_per_s.lowest(since_s)
        return lowest if self._excess_per_s.spans(since_s) else min(lowest, 0.0)

    def _fewest(
        self, reading: FleetReading, load: Load, hold_s: float, least: int = 1
    ) -> tuple[int, str]:
        """Replicas that carry the highest load of ``hold_s``, and the words for it."""
        now_s, past_s = reading.now_s, self._past_s()
        assert self._since_s is not None
        if (known_s := now_s - self._since_s) < past_s:
            return reading.target, f"only {known_s:.0f} s of the last {past_s:.0f} are known"
        start_s = max(self._starts.takes_s, SUSTAINED_S)
        peak = max(self._arriving.highest(now_s - hold_s), self._wanted.highest(now_s - start_s))
        deep = self._deep_wanted.highest(now_s - past_s)
        # Silent replicas are assumed to have as much to do as the others, and an uncertain capacity
        # to be as low as it may be.
        said = max(len(reading.replicas), 1)
        peak *= (said + reading.unreporting) / said * (1 + load.error_frac)
        since_s, use = (past_s, deep) if deep > peak else (max(hold_s, start_s), peak)
        about = f"the last {since_s:.0f} s needed {use:.1f} replicas"
        if not use:
            return least, about
        return max(whole(with_spare(peak)), int(deep)) + load.out_of_reach, about

    def _hardly_more(self, reading: FleetReading, load: Load, wanted: float) -> bool:
        """Whether ``wanted`` is so little above the running and starting replicas that it can wait.

        Not if arrivals exceed their capacity, requests wait outside, or many are late. If too many
        are late, the share that may be late falls, and the band with it: a larger margin inside the
        band would change nothing.
        """
        runs = reading.target - load.out_of_reach
        if load.capacity_per_s is None or load.queued >= 1 or self._allowance.many_late:
            return False
        if load.demand_per_s > (runs - reading.unreporting) * load.capacity_per_s:
            return False
        return hardly_more(wanted, runs, self._allowance.share / FIRST)

    def _past_s(self) -> float:
        return max(self._peak_s, self._peak_starts * self._starts.takes_s)

    def _stays_deep(self, load: Load, now_s: float) -> bool:
        """Whether the queue is as deep as ``queue_for_s`` ago, and was deep since.

        The queue of one engine counts up to twice its allowed depth: an engine that is stuck keeps
        its queue for hours, and is not worth a fleet. Requests refused in that time count as well,
        as they would wait otherwise.
        """
        most, for_s = 2 * self._queue_factor, self._queue_for_s
        waiting = load.queued + sum(
            min(each + refused_per_s * for_s, most * cap)
            for each, cap, refused_per_s in load.queues
        )
        if waiting <= self._queue_factor * load.caps:
            self._deep = Recent()
            return False
        deep = load.waiting + load.refused_per_s * self._queue_for_s
        self._deep.add(now_s, deep, 2 * self._queue_for_s)
        since_s = now_s - self._queue_for_s
        return self._deep.spans(since_s) and deep >= self._deep.at(since_s)

    def _unreachable(self, load: Load, now_s: float) -> bool:
        """Whether the SLA is out of reach for most replicas, or was in the last ``REACH_FOR_S``."""
        if load.out_of_reach > load.healthy:
            self._out_s = now_s
        if self._out_s is not None and not 0 <= now_s - self._out_s < REACH_FOR_S:
            self._out_s = None
        return self._out_s is not None

    def _when_unknown(self, reading: FleetReading, load: Load) -> Decision:
        if load.out_of_reach:
            self._out_s = reading.now_s
            return self._stay(reading, load, "out_of_reach", OUT_OF_REACH)
        if not reading.current and not reading.target and load.waiting:
            words = f"{load.waiting:.0f} requests wait for a first replica"
            return self._decision(reading, load, 1, "queue", words)
        return self._stay(
            reading, load, "unknown", f"no replica of {reading.current} reports enough"
        )

    def _when_idle(self, reading: FleetReading, load: Load) -> Decision:
        now_s, past_s = reading.now_s, self._past_s()
        self._provide(reading, 0.0)
        for counted in (self._arriving, self._wanted, self._deep_wanted):
            counted.add(now_s, 0.0, past_s)
        self._deep = Recent()
        if not reading.current:
            return self._decision(reading, load, reading.target, "idle", "no request comes")
        fewest, about = self._fewest(reading, load, past_s, least=0)
        words = f"no requests arrive; {about}"
        if fewest >= reading.target:
            return self._decision(reading, load, reading.target, "peak", words)
        return self._decision(reading, load, fewest, "idle", words)

    def _stay(self, reading: FleetReading, load: Load, reason: Reason, words: str) -> Decision:
        """Keep the number; the past has to be known anew before a replica is removed."""
        self._since_s = None
        return self._decision(reading, load, reading.target, reason, words)

    def _decision(
        self, reading: FleetReading, load: Load, desired: int, reason: Reason, words: str
    ) -> Decision:
        return Decision(
            desired=min(max(desired, reading.minimum), reading.maximum),
            reason=reason,
            words=words,
            demand_per_s=load.demand_per_s,
            capacity_per_s=load.capacity_per_s,
            capacity_error_frac=load.error_frac,
            start_s=self._starts.takes_s,
        )
