"""Which requests may wait in this replica, and which are refused at once. Pure.

Every request is admitted with a deadline for its first token, or refused before its first byte: if
the queue is full, if the request would be late, or, for a sheddable class, a little earlier.
"""

from collections import Counter
from dataclasses import dataclass, field

from controller.classes import AdmissionConfig, ServiceClasses
from controller.models.histogram import HistogramCounter
from replicas.admission.answers import (
    LONGEST_RETRY_S,
    Answer,
    Reason,
    refusal,
)
from replicas.admission.asked import Asked
from replicas.admission.drain import ArrivalRate
from replicas.admission.waiting import BACK, Entry, Waiting, level_of

QUEUE_PER_SLOT = 2  # requests that may wait for each slot, by default
# A request behind others is admitted only if it is in time even with SURGE times the arrivals of
# higher priorities: demand rises during a wait, and a low class that waits then is served last.
SURGE = 3.0
LATE_FRAC = 0.005  # of admitted requests may be late in the long run; with bursts 2%
STEP = 0.2  # of the correction, for each late request
MOST_CORRECTION = 8.0
COMEBACK_FRAC = 0.5  # share of the drain for refused requests that come again


@dataclass
class Counts:
    """Counts by class since the replica started."""

    let_in: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    error: HistogramCounter = field(default_factory=HistogramCounter)  # |predicted - waited|, s


class Admission:
    """The decisions of one replica.

    Args:
        classes: as configured; a change holds for later requests.
        slots: requests that the engine runs at once, at most.
    """

    def __init__(
        self, classes: ServiceClasses, config: AdmissionConfig, slots: int, now_s: float
    ) -> None:
        self.waiting = Waiting(now_s, slots)
        self.counts = Counts()
        self._slots = slots
        self._corrections: dict[str, float] = {}
        self.refusals = ArrivalRate(now_s)
        self._comeback_s: dict[int, float] = {}  # by priority: until when refused ones return
        self.configure(classes, config)

    def configure(self, classes: ServiceClasses, config: AdmissionConfig) -> None:
        """Use these from now on."""
        self.classes, self.config = classes, config
        self._levels = sorted({one.priority for one in classes.by_name.values()})
        self._corrections = {n: c for n, c in self._corrections.items() if n in classes.by_name}
        self.most_waiting = config.max_waiting or QUEUE_PER_SLOT * self._slots
        ranks = sorted({c.priority for c in classes.by_name.values() if c.sheddable}, reverse=True)
        band = (1 - config.shed_at) / max(len(ranks), 1)
        self._shed_at = {
            name: config.shed_at + ranks.index(one.priority) * band
            for name, one in classes.by_name.items()
            if one.sheddable
        }

    def check(
        self, asked: Asked, prompt_tokens: int, now_s: float, jitter: float, own: int = 0
    ) -> Answer | None:
        """Why a request with this many prompt tokens is refused now; None: it is not.

        With 0 prompt tokens the answer is what can be said before the prompt is read. A reason must
        be able to pass: a replica that holds only this request refuses none of its prompts, and a
        request with more prompts than places is judged by its first prompt.

        Args:
            own: prompts of this request that are inside.
        """
        if self.waiting.empty_but_for(own) or (own and asked.prompts > self._places):
            return None
        level = self._level(asked)
        predicted_s = self._predicted_s(level, prompt_tokens, now_s)
        left_s = asked.left_s(now_s)
        full = self._full(level)
        over_s = self._over_s(predicted_s, left_s, now_s)
        if predicted_s:  # over_s shrinks with the expected wait, not with the surge
            expected_s = self.waiting.wait_s(level, prompt_tokens, now_s) or 0.0
            over_s *= expected_s / predicted_s
        if full >= 1:
            detail = f"{self.waiting.requests} wait"
            return self._refuse("queue_full", asked, detail, now_s, over_s, jitter)
        if predicted_s is not None and predicted_s > left_s:
            detail = f"in up to {predicted_s:.1f} s, its deadline is in {left_s:.1f} s"
            longest_s = self.config.longest_wait_s
            if isinstance(longest_s, float) and asked.deadline_s > longest_s - 1e-6:
                detail += f"; admission.longest_wait_s is {longest_s:g}"
            return self._refuse("deadline", asked, detail, now_s, over_s, jitter)
        if asked.sheddable and self.waiting.turns_unknown(level, now_s):
            detail = "how long it would wait is not known yet"
            return self._refuse("shed", asked, detail, now_s, over_s, jitter)
        if asked.sheddable:
            used = max(full, 0.0 if predicted_s is None else predicted_s / max(left_s, 1e-9))
            if used >= self._shed_at.get(asked.name, 1.0):
                detail = f"{100 * min(used, 1.0):.0f}% of what can wait in time"
                return self._refuse("shed", asked, detail, now_s, over_s, jitter)
        return None

    def let_in(self, asked: Asked, prompt_tokens: int, now_s: float) -> Entry:
        """Count a request as waiting in the engine; call ``check`` first."""
        level = self._level(asked)
        entry = Entry(
            asked.name,
            level,
            prompt_tokens,
            asked.arrived_s,
            now_s,
            asked.arrived_s + asked.deadline_s,
            self.waiting.wait_s(level, prompt_tokens, now_s),
        )
        self.waiting.add(entry, now_s)
        self.counts.let_in[asked.name] += 1
        return entry

    def started(self, entry: Entry, now_s: float) -> None:
        """A request got its first token."""
        if entry.started or entry.ended:
            return
        self.waiting.start(entry, now_s)
        self.counts.started[entry.name] += 1
        if entry.predicted_s is not None:
            self.counts.error.add(abs(entry.predicted_s - (now_s - entry.let_in_s)))
        self._note_late(entry, late=now_s > entry.due_s)

    def timed_out(self, entry: Entry, asked: Asked, now_s: float, jitter: float) -> Answer:
        """The answer to a request that waited past its timeout."""
        self._note_late(entry, late=True)
        detail = f"{now_s - asked.arrived_s:.1f} s"
        over_s = self._over_s(None, 0.0, now_s)
        return self._refuse("queue_timeout", asked, detail, now_s, over_s, jitter)

    def failed(self, asked: Asked, now_s: float, jitter: float) -> Answer:
        """The answer if the engine failed before the first token; another replica may serve it."""
        return self._refuse("engine_failed", asked, "", now_s, 1.0, jitter)

    def _level(self, asked: Asked) -> int:
        return level_of(asked.priority, self._levels)

    @property
    def _places(self) -> int:
        """Prompts that an idle replica admits at once."""
        return self.most_waiting + self._slots

    def _full(self, priority: int) -> float:
        """The share of the places that is taken for a request of this priority.

        Requests of lower priority must leave places for it: they may take at most half of the
            total.
        """
        most = self.most_waiting + max(self._slots - self.waiting.running, 0)
        before = self.waiting.requests_before(priority)
        return max(before / most, self.waiting.requests / (2 * most))

    def _predicted_s(self, priority: int, prompt_tokens: int, now_s: float) -> float | None:
        """The wait by which a request is judged, longer than the expected one."""
        wait_s = self.waiting.wait_s(priority, prompt_tokens, now_s, SURGE)
        return None if wait_s is None else wait_s * self._correction(priority)

    def _correction(self, priority: int) -> float:
        """The largest correction of the classes served before this priority or with it."""
        known = self.classes.by_name
        return max(
            (c for name, c in self._corrections.items() if known[name].priority <= priority),
            default=1.0,
        )

    def _note_late(self, entry: Entry, *, late: bool) -> None:
        # Each late request makes predictions longer, and each one in time a little shorter. In the
        # long run LATE_FRAC of a class is late, whatever the quality of the prediction.
        self.counts.late[entry.name] += late
        if entry.predicted_s is not None and entry.name in self.classes.by_name:
            moved = self._corrections.get(entry.name, 1.0) + STEP * (late - LATE_FRAC)
            self._corrections[entry.name] = min(max(moved, 1.0), MOST_CORRECTION)

    def _over_s(self, predicted_s: float | None, left_s: float, now_s: float) -> float:
        """How long until the queue is short enough for such a request."""
        if predicted_s is None:
            predicted_s = self.waiting.wait_s(BACK, 0, now_s) or 0.0
        return max(predicted_s - max(left_s, 0.0), 0.0)

    def _refuse(
        self,
        reason: Reason,
        asked: Asked,
        detail: str,
        now_s: float,
        retry_s: float,
        jitter: float,
    ) -> Answer:
        self.counts.refused[asked.name, reason] += 1
        known = self.classes.by_name.get(asked.name)
        if known is None or known.autoscale:
            self.refusals.arrived(now_s)
        level = self._level(asked)
        if reason != "queue_timeout":  # it was counted when it arrived
            self.waiting.asked(level, now_s)
        per_s = self.waiting.per_s(now_s)
        if per_s and reason != "engine_failed":
            # Refused requests of its priority and above come first. Each is told a later time, so
            # they come back no faster than the replica can take them, new requests included.
            told = {p: until_s for p, until_s in self._comeback_s.items() if until_s > now_s}
            first_s = max((s for p, s in told.items() if p <= level), default=now_s)
            retry_s = max(retry_s, first_s - now_s)
            if retry_s <= LONGEST_RETRY_S:
                told[level] = first_s + 1 / (COMEBACK_FRAC * per_s)
            self._comeback_s = told
        return refusal(reason, asked.name, detail, retry_s, jitter)
