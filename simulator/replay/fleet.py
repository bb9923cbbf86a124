"""Several engines in virtual time, and the production router's choice between them.

Each engine is the one of ``simulator.replay.engine``, with a controller of its own. Its figures
reach the router as over Ray Serve's controller: with each exchange, a moment old.
"""

import gc
import heapq
import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from replicas.engine.prefixes import PREFIX_TOKENS
from replicas.server.routing_stats import KEY, routing_stats
from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.gather import End
from serve_app.routing.held import Prefix
from serve_app.routing.replica_load import Asked, ReplicaLoad, read_room
from simulator.replay.engine import Engine
from simulator.virtual.ground import Ground
from simulator.virtual.plan import Plan
from simulator.virtual.trace import Gaps, Trace, make_gaps
from simulator.workloads.requests import Request, follow_up

PIECE_TOKENS = 256  # of `router.prefix_chars` at four characters a token
STATS_DELAY_S = 0.25  # from the exchange until the router knows it


@dataclass(frozen=True, slots=True)
class News:
    """An engine's room, and when the router hears of it."""

    heard_s: float
    engine: int
    room: ReplicaLoad | None


class Steers(Protocol):
    """What chooses an engine for each request."""

    def pick(self, request: Request, now_s: float) -> int:
        """The engine for a request."""
        ...

    def hear(self, engine: int, room: ReplicaLoad | None, now_s: float) -> None:
        """What an engine says of its room."""
        ...


def prefix_of(request: Request) -> Prefix | None:
    """How its prompt begins, as a router sees its text; None: it shares nothing."""
    if request.conversation is None and not request.prefix:
        return None
    shared = len(request.prefix) * PREFIX_TOKENS // PIECE_TOKENS
    whole = request.input_tokens // PIECE_TOKENS
    if request.conversation is None:
        whole = min(whole, shared)
    pieces = tuple(
        hash((k, request.prefix[k * PIECE_TOKENS // PREFIX_TOKENS]))
        if k < shared
        else hash((k, request.conversation))
        for k in range(whole)
    )
    return Prefix(pieces, PIECE_TOKENS)


class Router:
    """``HeadroomRouter``'s choice.

    Args:
        ends: by class, where classes are gathered.
        prefix_affinity: as in ``RouterConfig``.

    Attributes:
        places: engines that may be chosen.
    """

    def __init__(
        self, engines: int, seed: int, ends: Mapping[str, End], *, prefix_affinity: bool = False
    ) -> None:
        self.places, self._ends = range(engines), ends
        self._chooser: HeadroomChooser[int] = HeadroomChooser(
            prefix_affinity=prefix_affinity, rng=random.Random(seed)
        )

    def pick(self, request: Request, now_s: float) -> int:
        """The engine for a request."""
        asked = Asked(request.input_tokens, request.max_tokens)
        end, prefix = self._ends.get(request.service or ""), prefix_of(request)
        chosen = self._chooser.choose(
            self.places, asked, now_s, prefix=prefix, among=self.places, end=end
        )
        self._chooser.sent(chosen.replica, asked, now_s, chosen.cached_tokens)
        return chosen.replica

    def hear(self, engine: int, room: ReplicaLoad | None, now_s: float) -> None:
        """What an engine says of its room."""
        self._chooser.update(engine, room, now_s)


class ByClass:
    """An engine for each class."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}

    def pick(self, request: Request, now_s: float) -> int:
        """The engine of the request's class."""
        return self._places[request.service or ""]

    def hear(self, engine: int, room: ReplicaLoad | None, now_s: float) -> None:
        """Nothing depends on it."""


class Member(Engine):
    """An engine that is sent requests while it runs.

    Attributes:
        followers: requests that follow answers which have ended here, since it was last emptied.
        talks: requests here that others follow.
    """

    def __init__(
        self,
        all_requests: Sequence[Request],
        plan: Plan,
        ground: Ground,
        connector: type[Any] | None = None,
    ) -> None:
        super().__init__(all_requests, all_requests, plan, ground, connector)
        self._plan, self._batching = plan, plan.batching
        self._sent: list[Request] = []
        self._take(self._sent)
        self._told_s = -math.inf
        self.followers: list[Request] = []
        self.talks = 0

    @property
    def _idle(self) -> bool:
        return not (self._ledger or self._flights or self._arrived < len(self._sent))

    @property
    def next_s(self) -> float:
        """When it does something next: while it has no request, its next exchange."""
        return max(self._clock.now_s, self._link.due_s) if self._idle else self._clock.now_s

    def send(self, request: Request, now_s: float) -> None:
        """One more request, which comes now."""
        if self._idle:
            self._clock.now_s = max(self._clock.now_s, now_s)
        self.talks += bool(request.then)
        self._sent.append(request)
        self._ledger.expect(request)

    def turn(self) -> None:
        """One iteration of EngineCore's loop."""
        self._clock.now_s = self.next_s
        self._let_in()
        self._link.tick(self._clock.now_s)
        if self._works():
            self._iterate()

    def _refused(self, request: Request) -> None:
        self.talks -= bool(request.then)

    def _ended(self, request: Request, now_s: float) -> None:
        if (after := follow_up(request, now_s)) is not None:
            self.talks -= 1
            self.followers.append(after)

    def _works(self) -> bool:
        """Whether there is anything to iterate for."""
        return bool(self._ledger or self._flights)

    def news(self, engine: int) -> News | None:
        """What it has said since this was last asked."""
        link = self._link
        if link.report is None or link.reported_s <= self._told_s:
            return None
        self._told_s = link.reported_s
        stats = routing_stats(link.report, self._batching, link.reported_s)
        return News(link.reported_s + STATS_DELAY_S, engine, read_room({KEY: stats}))

    def close(self, end_s: float) -> Trace:
        """What happened until then; who came last may not have been let in yet."""
        self._let_in()
        outcomes, stays = self._ledger.close(end_s, self._scheduler.computed())
        return Trace(
            outcomes[: self._arrived], tuple(self._steps), make_gaps(self._ledger.gaps), stays,
            self._kv_tokens, end_s,
        )  # fmt: skip


def replay_fleet(
    requests: Sequence[Request],
    plan: Plan,
    ground: Ground,
    engines: int,
    router: Steers,
    *,
    until_s: float = math.inf,
    unlike: Mapping[int, Ground] = MappingProxyType({}),
) -> tuple[Trace, ...]:
    """Serve these requests (in order of arrival) until the last has come; a trace an engine.

    The engine that is furthest behind does its next iteration, unless the next request comes
    before that: then the router is asked, which by then knows what is ``STATS_DELAY_S`` old.

    Args:
        until_s: it ends then at the latest.
        unlike: engines that stand on another ground, by number.
    """
    members = [Member(requests, plan, unlike.get(k, ground)) for k in range(engines)]
    order = count()
    coming = [(request.arrival_s, next(order), request) for request in requests]
    end_s = 0.0
    news: deque[News] = deque()
    collecting = gc.isenabled()
    gc.disable()  # as in a replay of one engine
    try:
        while coming or any(member.talks for member in members):
            behind = min(range(engines), key=lambda k: members[k].next_s)
            if coming and coming[0][0] <= members[behind].next_s:
                end_s, _, request = coming[0]
                if end_s > until_s:
                    break
                heapq.heappop(coming)
                while news and news[0].heard_s <= end_s:
                    said = news.popleft()
                    router.hear(said.engine, said.room, end_s)
                members[router.pick(request, end_s)].send(request, end_s)
                continue
            if members[behind].next_s > until_s:
                break
            members[behind].turn()
            for after in members[behind].followers:
                heapq.heappush(coming, (after.arrival_s, next(order), after))
            members[behind].followers.clear()
            if (said_now := members[behind].news(behind)) is not None:
                news.append(said_now)
    finally:
        if collecting:
            gc.enable()
    return tuple(member.close(min(end_s, until_s)) for member in members)


def together(traces: Sequence[Trace]) -> Trace:
    """One trace of all engines: its requests are numbered engine by engine."""
    first = np.cumsum([0, *(len(one.outcomes) for one in traces)])
    gaps = Gaps(
        np.concatenate([one.gaps.length_s for one in traces]),
        np.concatenate([one.gaps.end_s for one in traces]),
        np.concatenate([one.gaps.request + at for one, at in zip(traces, first, strict=False)]),
    )
    return replace(
        traces[0],
        outcomes=tuple(outcome for one in traces for outcome in one.outcomes),
        steps=tuple(step for one in traces for step in one.steps),
        gaps=gaps,
        stays=(),
        kv_tokens=sum(one.kv_tokens for one in traces),
    )
