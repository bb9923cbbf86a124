"""Requests that wait for a first token, and how long one more would wait. Pure."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from replicas.admission.drain import LEAST_SHARE, LEAST_STARTS, ArrivalRate, DrainRate, EngineView

BACK = 2**63  # after all other priorities: the end of the queue
SURGE_SHARE = 0.05  # least share of the drain for a class in a surge of higher ones


@dataclass(slots=True, eq=False)
class Entry:
    """One admitted request.

    Args:
        predicted_s: predicted wait from ``let_in_s`` on; None if unknown.
        due_s: deadline of its first token, on the replica's clock.
        queued: no slot was free for it.
    """

    name: str
    priority: int
    prompt_tokens: int
    arrived_s: float
    let_in_s: float
    due_s: float
    predicted_s: float | None
    queued: bool = False
    started: bool = False
    ended: bool = False


@dataclass(slots=True)
class _Rank:
    requests: int = 0
    tokens: int = 0


def level_of(priority: int, levels: Sequence[int]) -> int:
    """The level at which a priority counts: nearby priorities share one.

    Clients may send any of four billion priorities, and each level costs every request a little.
    The priorities of configured classes are levels; between and around them, distances double.

    Args:
        levels: of the classes, first served first; at least one.
    """
    place = bisect_right(levels, priority)
    if not place:
        return levels[0] + 1 - (1 << (levels[0] - priority).bit_length())
    above = levels[place - 1]
    away = priority - above
    return above + (1 << away.bit_length() >> 1)


class Waiting:
    """Counts by priority, updated with every event; the engine's part comes with its reports.

    Args:
        slots: requests that the engine runs at once, at most; used until its first report.

    Attributes:
        running: requests with a first token that have not ended.
        engine: the values of the last report that waiting depends on.
        drain: rate at which waiting prompts are computed.
        turns: rate at which requests start for which no slot was free; free slots fill at another
            rate than taken ones come free.
    """

    def __init__(self, now_s: float, slots: int) -> None:
        self.running = 0
        self.engine = EngineView(free_slots=slots)
        self.drain, self.turns = DrainRate(now_s), DrainRate(now_s)
        self._queued = 0
        self._ends = ArrivalRate(now_s)
        self._ranks: dict[int, _Rank] = {}
        self._arrivals: dict[int, ArrivalRate] = {}
        self._inside_then = 0  # at the time of the engine's view

    @property
    def requests(self) -> int:
        """Requests without a first token."""
        return sum(rank.requests for rank in self._ranks.values())

    def empty_but_for(self, own: int) -> bool:
        """Whether no more than ``own`` requests are inside, by the last report."""
        return self.running + self.requests <= own and self._free_slots() + own > 0

    def requests_before(self, priority: int) -> int:
        """Requests without a first token, of this priority or above."""
        return sum(rank.requests for p, rank in self._ranks.items() if p <= priority)

    @property
    def tokens(self) -> int:
        """Prompt tokens of waiting requests; half-computed prompts count as a whole."""
        return sum(rank.tokens for rank in self._ranks.values())

    def learn(self, view: EngineView) -> None:
        """Take a report."""
        self.engine = view
        self._inside_then = self.running + self.requests

    def add(self, entry: Entry, now_s: float) -> None:
        """A request begins to wait."""
        self._pass_time(now_s)
        entry.queued = self._free_slots() <= 0
        self._queued += entry.queued
        rank = self._ranks.setdefault(entry.priority, _Rank())
        rank.requests += 1
        rank.tokens += entry.prompt_tokens
        self.asked(entry.priority, now_s)

    def asked(self, priority: int, now_s: float) -> None:
        """A request of this priority arrived, admitted or not."""
        if priority not in self._arrivals:
            self._arrivals = {p: a for p, a in self._arrivals.items() if a.per_s(now_s) > 1e-3}
        self._arrivals.setdefault(priority, ArrivalRate(now_s)).arrived(now_s)

    def start(self, entry: Entry, now_s: float) -> None:
        """A request got its first token, and runs."""
        self._pass_time(now_s)
        self._leave(entry)
        entry.started = True
        self.running += 1
        self.drain.started(entry.prompt_tokens)
        if entry.queued:
            self.turns.started(entry.prompt_tokens)

    def end(self, entry: Entry, now_s: float) -> None:
        """A request is gone: finished, aborted, or never begun."""
        if entry.ended:
            return
        self._pass_time(now_s)
        entry.ended = True
        if entry.started:
            self.running -= 1
            self._ends.arrived(now_s)
        else:
            self._leave(entry)

    def wait_s(
        self, priority: int, prompt_tokens: int, now_s: float, surge: float = 1.0
    ) -> float | None:
        """How long one more request would wait for its first token, seconds.

        Requests of its priority and above go first. It waits for a slot and for its prompt tokens
        behind all others, whichever takes longer; later arrivals of higher priority take their
        share of the drain.

        Args:
            surge: factor on arrivals of higher priority; from 1.

        Returns:
            None without a measurement or a step model.
        """
        self._pass_time(now_s)
        ahead = [rank for p, rank in self._ranks.items() if p <= priority]
        requests = sum(rank.requests for rank in ahead)
        tokens = sum(rank.tokens for rank in ahead)
        per_s = self.per_s(now_s)
        tokens_per_s = max(self.drain.tokens_per_s or 0.0, self.engine.prompt_tokens_per_s or 0.0)
        if not per_s and not tokens_per_s:
            return None
        left_frac = 1.0
        if per_s and priority != BACK:
            above = (rate.per_s(now_s) for p, rate in self._arrivals.items() if p < priority)
            above_frac = sum(above) / per_s
            left_frac = max(1 - above_frac, LEAST_SHARE)
            if surge > 1:
                left_frac = min(left_frac, max(1 - surge * above_frac, SURGE_SHARE))
        turns: float = min(requests + 1, max(1 - self._free_slots(), 0))
        if surge > 1:
            turns += math.sqrt(turns)  # slots come free at random: enough in 5 of 6 cases (Poisson)
        turn_s = turns / (per_s * left_frac) if per_s else 0.0
        prompt_s = (tokens + prompt_tokens) / tokens_per_s if tokens_per_s else 0.0
        return max(turn_s, prompt_s / (left_frac if turn_s else 1.0)) + self.engine.step_s

    def per_s(self, now_s: float) -> float | None:
        """Requests that start per second, as measured or reported; None if unknown."""
        starts_per_s = self.turns.requests_per_s
        if starts_per_s is None or not self.engine.full:
            return starts_per_s or self.engine.requests_per_s
        # Starts while the slots filled say nothing of how fast they come free.
        if self._ends.known(now_s):
            return min(starts_per_s, self._ends.per_s(now_s))
        return min(starts_per_s, self.engine.requests_per_s or starts_per_s)

    def turns_unknown(self, priority: int, now_s: float) -> bool:
        """Whether the time to a slot is unknown, and enough requests wait to learn it."""
        ahead = min(self.requests_before(priority), -self._free_slots())
        return ahead >= LEAST_STARTS and not self.per_s(now_s)

    def _free_slots(self) -> int:
        """By the last report and events since; negative: requests without a slot."""
        if self.engine.free_slots is None:
            return 0
        return self.engine.free_slots - (self.running + self.requests - self._inside_then)

    def _leave(self, entry: Entry) -> None:
        rank = self._ranks[entry.priority]
        rank.requests -= 1
        rank.tokens -= entry.prompt_tokens
        self._queued -= entry.queued
        if not rank.requests:
            del self._ranks[entry.priority]

    def _pass_time(self, now_s: float) -> None:
        self.drain.pass_time(now_s, waiting=bool(self._ranks))
        self.turns.pass_time(now_s, waiting=self._queued > 0)
