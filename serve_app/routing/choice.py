"""Which replica gets the next request: the one with the least forecast wait. Pure.

A few replicas are drawn at random (power of d choices) and the one with the shortest forecast wait
is taken, so a decision costs no more with many replicas. Until a replica's next statistics arrive,
requests that this router sent there are added to the last ones; newer statistics include them, so
they are dropped. Times are Unix seconds: replicas date statistics by their own clocks, which must
agree within a second or so.

What a replica's prefix cache holds of a prompt costs no wait there. A conversation's context counts
three times if it is missing: it is computed again, others wait for that, and it evicts as much that
is cached for others. So a conversation stays on its replica unless that is slower by more. A prefix
of many prompts belongs on many replicas: while too few hold it, it does not count.
"""

import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from serve_app.routing.gather import End
from serve_app.routing.held import HeldPrefixes, Memory, Prefix
from serve_app.routing.replica_load import Asked, Forecast, LoadDefaults, ReplicaLoad, forecast

K = TypeVar("K", bound=Hashable)

Outcome = Literal["room", "prefix", "partial", "sent", "random"]
"""What decided: the headroom of all drawn replicas; the prefix that a replica holds; headroom,
while some statistics are too old; what was sent lately, if all are too old; the draw, if nothing
differs."""

FLIGHT_S = 0.05  # from the decision to the engine: HAProxy, HTTP, tokenizer, the engine's socket
ALIKE, ALIKE_S = 0.05, 0.001  # waits closer than this count as equal
MOST_GATHERED = 64  # replicas that are compared with class affinity
FORGOTTEN_TOKENS = 1e12  # more than any KV memory holds
LEAST_SHARE = 0.05  # of the traffic: 20 routers at most are told apart
ENOUGH, FADE_AT = 20, 200  # arrivals needed for a share; number at which old ones fade


@dataclass(slots=True, eq=False)
class Sent:
    """A request that was sent to a replica; all 0 once it is dropped or taken back."""

    sent_s: float
    tokens: float  # of its prompt, to be computed
    kv_tokens: float  # of its whole prompt
    requests: int = 1


@dataclass(slots=True)
class _Known:
    """What this router knows of one replica."""

    room: ReplicaLoad | None = None
    taken_s: float = float("-inf")
    since: deque[Sent] = field(default_factory=deque)
    requests: int = 0  # sums over `since`
    tokens: float = 0.0
    kv_tokens: float = 0.0
    promised: int = 0  # prompts computed elsewhere for it, and their tokens
    promised_tokens: float = 0.0
    written_before: float = 0.0  # by earlier engines of this replica

    def add(self, sent: Sent) -> None:
        self.since.append(sent)
        self.requests += sent.requests
        self.tokens += sent.tokens
        self.kv_tokens += sent.kv_tokens

    def drop_until(self, until_s: float) -> int:
        """Forget requests sent until then; returns their number."""
        dropped = 0
        while self.since and self.since[0].sent_s <= until_s:
            sent = self.since.popleft()
            dropped += sent.requests
            self.tokens -= sent.tokens
            self.kv_tokens -= sent.kv_tokens
            sent.requests, sent.tokens, sent.kv_tokens = 0, 0.0, 0.0
        self.requests -= dropped
        if not self.since:
            self.tokens = self.kv_tokens = 0.0  # rounding errors must not add up
        return dropped

    @property
    def written(self) -> float:
        """Tokens written to its KV memory, including those of requests in flight."""
        said = self.room.written_tokens if self.room is not None else None
        return self.written_before + (said or 0) + self.tokens

    def moved_to(self, room: ReplicaLoad) -> None:
        """Take newer statistics. After an engine restart the prefix cache is empty."""
        said = self.room.written_tokens if self.room is not None else None
        if said is not None and room.written_tokens is not None and room.written_tokens < said:
            self.written_before = self.written + FORGOTTEN_TOKENS
        self.room = room

    @property
    def memory(self) -> Memory:
        """Its KV memory now, including requests in flight."""
        if self.room is None or self.room.written_tokens is None:
            return Memory(self.written, math.inf)
        return Memory(self.written, self.room.kv_free_tokens)


@dataclass(frozen=True, slots=True)
class Choice(Generic[K]):
    """The chosen replica, the next ones if it refuses, and what decided.

    Args:
        wait_s: forecast for the chosen one, with the costs of class affinity and of a move; None if
            nothing is known.
        cached_tokens: tokens of the prompt that it is known to hold; None: the prompt is unknown.
        not_sent: call it if the prompt was not sent: it is no longer counted as cached there.
    """

    replica: K
    others: tuple[K, ...]
    outcome: Outcome
    wait_s: float | None
    cached_tokens: float | None = None
    not_sent: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)


class HeadroomChooser(Generic[K]):
    """Chooses replicas of one deployment for one router.

    Args:
        choices: replicas drawn for a decision.
        stale_after_s: statistics older than this are not trusted.
        prefix_affinity: whether cached beginnings of prompts count as computed, and several times
            if they are missing (``HeldPrefixes.again``); replicas that hold most of a prompt are
            compared with the drawn ones.
        own: a replica to which no other router sends requests.
        rng: source of the draw; tests bring their own.
    """

    def __init__(
        self,
        *,
        choices: int = 4,
        stale_after_s: float = 5.0,
        prefix_affinity: bool = False,
        own: K | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._own_replica = own
        self._choices = choices
        self._stale_after_s = stale_after_s
        self._prefix_affinity = prefix_affinity
        self._random = rng or random.Random()
        self._known: dict[K, _Known] = {}
        # By the end from which a class is served: each class has its prefixes at its own end.
        self._held: defaultdict[bool | None, HeldPrefixes[K]] = defaultdict(HeldPrefixes)
        self._own = self._all = 0.0  # counted requests: sent from here, and all arrivals
        self.usual = LoadDefaults()

    @property
    def share(self) -> float:
        """This router's share of all requests; other routers send the rest."""
        if self._all < ENOUGH:
            return 1.0
        return min(max(self._own / self._all, LEAST_SHARE), 1.0)

    def keep(self, replicas: Container[K]) -> None:
        """Forget all other replicas."""
        for key in [key for key in self._known if key not in replicas]:
            del self._known[key]

    def update(self, replica: K, room: ReplicaLoad | None, now_s: float) -> None:
        """Take a replica's newest statistics; unchanged ones are ignored.

        If the date is in the future, or too old to be trusted, the replica's clock is off: the
        statistics then count as current, or as just recent enough.
        """
        if room is None:
            return
        known = self._known.setdefault(replica, _Known())
        if known.room is not None and room.taken_unix_s == known.room.taken_unix_s:
            return
        before, before_s = known.room, known.taken_s
        known.moved_to(room)
        known.taken_s = min(max(room.taken_unix_s, now_s - self._stale_after_s), now_s)
        own = known.drop_until(known.taken_s - FLIGHT_S)
        followed = known.taken_s - before_s <= self._stale_after_s  # else sends went uncounted
        shared = followed and replica != self._own_replica
        if before is not None and shared and room.arrivals >= before.arrivals:
            self._own += own
            self._all += room.arrivals - before.arrivals
            if self._all > FADE_AT:
                self._own, self._all = self._own / 2, self._all / 2
        self.usual = self.usual.moved(room)

    def choose(
        self,
        candidates: Sequence[K],
        asked: Asked,
        now_s: float,
        *,
        prefix: Prefix | None = None,
        among: Container[K] = (),
        end: End | None = None,
        detour_s: Callable[[K], float] | None = None,
    ) -> Choice[K]:
        """The best of a few of ``candidates``, which must not be empty.

        Args:
            prefix: how the prompt begins; None: unknown.
            among: ``candidates`` as a set; needed only with ``prefix``.
            end: from which end of ``candidates`` the request's class is served; None: no class
                affinity. With it, all routers must have one order of candidates.
            detour_s: gives what else costs wait at a replica.
        """
        if end is None:
            drawn = self._draw(candidates, self._choices)
        else:
            drawn = self._draw(candidates, MOST_GATHERED, in_order=True)
        held = self._held[None if end is None else end.first]
        pieces = prefix.pieces if prefix is not None and self._prefix_affinity else ()
        if end is None:  # with class affinity the place of a replica that was not drawn is unknown
            drawn += self._holders(held, pieces, drawn, among)
        known = [self._at(key, now_s) for key in drawn]
        fresh = [self._fresh(one, now_s) for one in known]
        strict = end is None or end.first
        cached = dict.fromkeys(drawn, None if prefix is None or not self._prefix_affinity else 0.0)
        counted = cached
        if prefix is not None and pieces:
            here = [
                held.held(pieces, *pair)
                for pair in zip(drawn, (one.memory for one in known), strict=True)
            ]
            tokens = [min(prefix.piece_tokens * n, asked.prompt_tokens) for n in here]
            cached = dict(zip(drawn, tokens, strict=True))
            most = max(tokens)
            again = held.again(pieces, max(here), among, len(candidates))
            counted = {key: most - again * (most - n) for key, n in cached.items()}
        found = [
            (key, self._forecast(key, one, asked, counted[key], is_fresh, strict, now_s))
            for key, one, is_fresh in zip(drawn, known, fresh, strict=True)
        ]
        if end is not None:
            found = [
                (key, one.detoured(end.detour_s(place, len(found))))
                for place, (key, one) in enumerate(found)
            ]
        if detour_s is not None:
            found = [(key, one.detoured(detour_s(key))) for key, one in found]
        if not any(fresh):
            if end is not None and not end.first:
                drawn.reverse()  # with equal tokens sent, the one at its end leads
            by_sent = {
                key: self._at(key, now_s).tokens
                + self.usual.to_compute(asked.prompt_tokens, counted[key])
                for key in drawn
            }
            drawn.sort(key=lambda key: by_sent[key])
            told_apart = len(set(by_sent.values())) > 1
            best = drawn[0]
            outcome: Outcome = "sent" if told_apart else "random"
            undo = held.add(pieces, best, self._at(best, now_s).memory)
            return Choice(best, tuple(drawn[1:]), outcome, None, cached[best], undo)
        alike_s = math.inf if end is None else end.step_s(len(found)) / 2
        ordered = _ordered(found, alike_s)
        best, its = ordered[0]
        outcome = "room" if all(fresh) else "partial"
        if any(cached.values()):
            plain = [(key, one.detoured(one.saved_s)) for key, one in found]
            if _ordered(plain, alike_s)[0][0] != best:
                outcome = "prefix"
        undo = held.add(pieces, best, self._at(best, now_s).memory)
        others = tuple(key for key, _ in ordered[1:])
        return Choice(best, others, outcome, its.wait_s, cached[best], undo)

    def sent(
        self, replica: K, asked: Asked, now_s: float, cached_tokens: float | None = None
    ) -> Sent:
        """Count a request as sent; returns what ``take_back`` needs.

        Args:
            cached_tokens: as in its ``Choice``.
        """
        here = asked.part != "loaded"
        tokens = self.usual.to_compute(asked.prompt_tokens, cached_tokens) if here else 0.0
        sent = Sent(now_s, tokens, asked.prompt_tokens if here else 0.0)
        self._known.setdefault(replica, _Known()).add(sent)
        return sent

    def promise(self, replica: K, asked: Asked) -> None:
        """Reserve headroom for a request whose prompt is first computed elsewhere."""
        known = self._known.setdefault(replica, _Known())
        known.promised += 1
        known.promised_tokens += asked.prompt_tokens

    def keep_promise(self, replica: K, asked: Asked, now_s: float) -> None:
        """Count a reserved request as sent."""
        known = self._known.setdefault(replica, _Known())
        known.promised -= 1
        known.promised_tokens -= asked.prompt_tokens
        self.sent(replica, asked, now_s)

    def take_back(self, replica: K, sent: Sent) -> None:
        """Count a request as not sent after all."""
        known = self._known.get(replica)
        if known is not None:
            known.requests -= sent.requests
            known.tokens -= sent.tokens
            known.kv_tokens -= sent.kv_tokens
        sent.requests, sent.tokens, sent.kv_tokens = 0, 0.0, 0.0

    def _holders(
        self, held: HeldPrefixes[K], pieces: Sequence[int], drawn: Sequence[K], among: Container[K]
    ) -> list[K]:
        """Replicas that hold most of a prompt and were not drawn; at most ``choices``."""
        more: list[K] = []
        for key in held.holders(pieces):
            if len(more) == self._choices:
                break
            if key in among and key not in drawn and key not in more:
                more.append(key)
        return more

    def _draw(self, candidates: Sequence[K], most: int, *, in_order: bool = False) -> list[K]:
        """A few replicas at random, in the order of the draw or of ``candidates``."""
        places = self._random.sample(range(len(candidates)), min(most, len(candidates)))
        return [candidates[i] for i in (sorted(places) if in_order else places)]

    def _at(self, key: K, now_s: float) -> _Known:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known()
        if not self._fresh(known, now_s):  # else nothing would ever be dropped
            known.drop_until(now_s - self._stale_after_s)
        return known

    def _fresh(self, known: _Known, now_s: float) -> bool:
        return known.taken_s >= now_s - self._stale_after_s

    def _forecast(
        self,
        key: K,
        known: _Known,
        asked: Asked,
        cached_tokens: float | None,
        fresh: bool,
        strict: bool,
        now_s: float,
    ) -> Forecast:
        others = 1.0 if key == self._own_replica else 1 / self.share
        return forecast(
            known.room,
            asked,
            self.usual,
            sent_requests=known.requests * others,
            sent_tokens=known.tokens * others,
            sent_kv_tokens=known.kv_tokens * others,
            cached_tokens=cached_tokens,
            promised=(known.promised * others, known.promised_tokens * others),
            age_s=now_s - known.taken_s if known.room is not None else 0.0,
            fresh=fresh,
            strict=strict,
        )


def _ordered(found: list[tuple[K, Forecast]], most_s: float) -> list[tuple[K, Forecast]]:
    """By wait; of those with about the shortest wait, the least loaded leads. Ties: as drawn.

    Args:
        most_s: waits that differ by more never count as equal.
    """
    by_wait = sorted(found, key=lambda pair: pair[1].wait_s)
    shortest_s = by_wait[0][1].wait_s
    alike_s = shortest_s + min(max(ALIKE * shortest_s, ALIKE_S), most_s)
    leading = [pair for pair in by_wait if pair[1].wait_s <= alike_s]
    leading.sort(key=lambda pair: pair[1].filled)
    return leading + by_wait[len(leading) :]
