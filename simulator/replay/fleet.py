"""Several engines in virtual time: the production router, roles, KV transfers.

Each engine is that of ``simulator.replay.engine``, with its own controller. Its statistics reach
the router as through Ray Serve's controller: with each sync, slightly old. One engine may compute a
prompt that another answers, and roles change during the run.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from controller.roles import Transfer
from serve_app.routing.ways import Way
from simulator.replay.engine import Coming, uncollected
from simulator.replay.member import Load, Member
from simulator.replay.steering import Steering
from simulator.virtual.ground import Ground
from simulator.virtual.plan import Plan
from simulator.virtual.trace import Outcome, Trace, make_gaps
from simulator.virtual.transfer import Cards, Moved
from simulator.workloads.requests import Request

STATS_DELAY_S = 0.25  # from the sync until the router gets it


@dataclass(frozen=True, slots=True)
class FleetTrace:
    """A replay of a fleet.

    Args:
        trace: of all engines; a request's first token is the one that the client gets, from the
            decoding engine.
        moved: the transfers.
        ways: the route of each request that arrived.
        held: KV tokens held by each engine at the end.
    """

    trace: Trace
    moved: tuple[Moved, ...]
    ways: tuple[Way[int], ...]
    held: tuple[int, ...]


class Fleet:
    """One replay.

    Args:
        requests: in order of arrival.
        transfer: of KV between engines.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        plan: Plan,
        ground: Ground,
        engines: int,
        transfer: Transfer,
        steering: Steering,
    ) -> None:
        self._coming, self._steering = Coming(requests), steering
        self._cards = Cards(engines, transfer)
        self._members = [Member(requests, plan, ground, self._load_of(k)) for k in range(engines)]
        self._requests: list[Request] = []  # that arrived
        self._ways: list[Way[int]] = []
        self._handing = 0  # prompts that are not yet handed over
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    def run(self, *, drain: bool = False) -> FleetTrace:
        """Serve until the last arrival, or with ``drain`` until all requests are served.

        The engine whose clock is furthest behind runs its next iteration, unless a request arrives
        or an event is due before.
        """
        with uncollected():
            self._steer()
            end_s = self._run(drain)
        return self._close(end_s)

    def _run(self, drain: bool) -> float:
        members, coming = self._members, self._coming
        while coming or (drain and (self._handing or any(m.busy for m in members))):
            member = min(members, key=lambda one: one.next_s)
            now_s = member.next_s
            if self._events and self._events[0][0] <= min(now_s, coming.next_s):
                at_s, _, act = heapq.heappop(self._events)
                act(at_s)
            elif coming.next_s <= now_s:
                self._come(*coming.pop())
            else:
                member.begin_turn()
                member.end_turn()
                self._listen(member)
                coming.take(member.followers)
        last_s = self._requests[-1].arrival_s
        return max([last_s, *(m.next_s for m in members)]) if drain else last_s

    def _come(self, number: int, request: Request) -> None:
        now_s = request.arrival_s
        way = self._steering.pick(request, now_s)
        self._requests.append(request)
        self._ways.append(way)
        if way.prefill is None:
            self._members[way.decode].take(number, request, "whole", now_s)
        else:
            self._handing += 1
            self._members[way.prefill].take(number, request, "prompt", now_s)

    def _listen(self, member: Member) -> None:
        """Handle an engine's turn: computed prompts and published statistics."""
        for number in member.handed:
            self._later(member.now_s, partial(self._hand_over, number))
        member.handed.clear()
        if (news := member.news()) is not None:
            reported_s, report, room = news
            engine = self._members.index(member)

            def heard(now_s: float) -> None:
                self._steering.hear(engine, report, room, now_s)
                self._steer()

            self._later(reported_s + STATS_DELAY_S, heard)

    def _later(self, at_s: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), act))

    def _steer(self) -> None:
        for member, role in zip(self._members, self._steering.roles, strict=True):
            if member.role != role:
                member.become(role)

    def _hand_over(self, number: int, now_s: float) -> None:
        request, way = self._requests[number], self._ways[number]
        self._handing -= 1
        self._steering.handed_over(request, way, now_s)
        self._members[way.decode].take(number, request, "loaded", now_s)

    def _load_of(self, engine: int) -> Load:
        def begun(number: int, tokens: int, now_s: float) -> None:
            source = self._ways[number].prefill
            assert source is not None
            done_s = self._cards.move(source, engine, tokens, now_s)
            self._members[engine].receives(number, done_s)
            self._members[source].sends(number, done_s)

        return begun

    def _close(self, end_s: float) -> FleetTrace:
        members = self._members
        found = [member.close() for member in members]
        outcomes = []
        for number, (request, way) in enumerate(zip(self._requests, self._ways, strict=True)):
            own = found[way.decode].get(number, Outcome(request))
            if way.prefill is not None and (first := found[way.prefill].get(number)):
                own = replace(own, scheduled_s=first.scheduled_s)
            outcomes.append(own)
        trace = Trace(
            tuple(outcomes),
            tuple(step for member in members for step in member.steps),
            make_gaps([gap for member in members for gap in member.ledger.gaps]),
            sum(member.kv_tokens for member in members),
            end_s,
        )
        held = tuple(member.holds for member in members)
        return FleetTrace(trace, tuple(self._cards.moved), tuple(self._ways), held)
