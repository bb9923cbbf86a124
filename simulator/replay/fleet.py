"""Several engines in virtual time: the production router, roles, KV transfers.

Each engine is that of ``simulator.replay.engine``, with its own controller. Its statistics reach
the router as through Ray Serve's controller: with each sync, slightly old. One engine may compute a
prompt that another answers, and roles change during the run.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from controller.roles import Transfer
from serve_app.routing.ways import Way
from simulator.replay.engine import Arrivals, uncollected
from simulator.replay.member import Member, OnTransfer
from simulator.replay.steering import Fixed
from simulator.virtual.plan import Plan
from simulator.virtual.scenario import Scenario
from simulator.virtual.trace import Outcome, Trace, make_gaps
from simulator.virtual.transfer import NetworkLinks
from simulator.workloads.requests import Request

STATS_DELAY_S = 0.25  # from the sync until the router gets it


class Fleet:
    """One replay.

    Args:
        requests: in order of arrival.
        transfer: of KV between engines.

    Attributes:
        routes: of each request that arrived.
        links: with the KV transfers so far.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        plan: Plan,
        scenario: Scenario,
        engines: int,
        transfer: Transfer,
        steering: Fixed,
    ) -> None:
        self._arrivals, self._steering = Arrivals(requests), steering
        self.links = NetworkLinks(engines, transfer)
        self._members = [
            Member(requests, plan, scenario, self._on_transfer_to(k)) for k in range(engines)
        ]
        self._requests: list[Request] = []  # that arrived
        self.routes: list[Way[int]] = []
        self._prefilling = 0  # prompts in prefill for another engine
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    @property
    def held(self) -> list[int]:
        """KV tokens in each engine."""
        return [member.holds for member in self._members]

    def run(self, *, drain: bool = False) -> Trace:
        """Serve until the last arrival, or with ``drain`` until all requests are served.

        A request's first token is the one that the client gets, from the decoding engine.

        The engine whose clock is furthest behind runs its next iteration, unless a request arrives
        or an event is due before.
        """
        with uncollected():
            self._steer()
            end_s = self._run(drain)
        return self._close(end_s)

    def _run(self, drain: bool) -> float:
        members, arrivals = self._members, self._arrivals
        while arrivals or (drain and (self._prefilling or any(m.busy for m in members))):
            member = min(members, key=lambda one: one.next_s)
            now_s = member.next_s
            if self._events and self._events[0][0] <= min(now_s, arrivals.next_s):
                at_s, _, act = heapq.heappop(self._events)
                act(at_s)
            elif arrivals.next_s <= now_s:
                self._come(*arrivals.pop())
            else:
                member.begin_turn()
                member.end_turn()
                self._listen(member)
                arrivals.take(member.followers)
        last_s = self._requests[-1].arrival_s
        return max([last_s, *(m.next_s for m in members)]) if drain else last_s

    def _come(self, number: int, request: Request) -> None:
        now_s = request.arrival_s
        route = self._steering.pick(request, now_s)
        self._requests.append(request)
        self.routes.append(route)
        if route.prefill is None:
            self._members[route.decode].take(number, request, "whole", now_s)
        else:
            self._prefilling += 1
            self._members[route.prefill].take(number, request, "prompt", now_s)

    def _listen(self, member: Member) -> None:
        """Handle an engine's turn: computed prompts and published statistics."""
        for number in member.prefilled:
            self._later(member.now_s, partial(self._hand_over, number))
        member.prefilled.clear()
        if (news := member.news()) is not None:
            reported_s, report, load = news
            engine = self._members.index(member)

            def heard(now_s: float) -> None:
                self._steering.hear(engine, report, load, now_s)
                self._steer()

            self._later(reported_s + STATS_DELAY_S, heard)

    def _later(self, at_s: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), act))

    def _steer(self) -> None:
        for member, role in zip(self._members, self._steering.roles, strict=True):
            if member.role != role:
                member.become(role)

    def _hand_over(self, number: int, now_s: float) -> None:
        request, route = self._requests[number], self.routes[number]
        self._prefilling -= 1
        self._steering.handed_over(request, route, now_s)
        self._members[route.decode].take(number, request, "loaded", now_s)

    def _on_transfer_to(self, engine: int) -> OnTransfer:
        def begun(number: int, tokens: int, now_s: float) -> None:
            source = self.routes[number].prefill
            assert source is not None
            done_s = self.links.move(source, engine, tokens, now_s)
            self._members[engine].receives(number, done_s)
            self._members[source].sends(number, done_s)

        return begun

    def _close(self, end_s: float) -> Trace:
        members = self._members
        found = [member.close() for member in members]
        outcomes = []
        for number, (request, route) in enumerate(zip(self._requests, self.routes, strict=True)):
            own = found[route.decode].get(number, Outcome(request))
            if route.prefill is not None and (first := found[route.prefill].get(number)):
                own = replace(own, scheduled_s=first.scheduled_s)
            outcomes.append(own)
        return Trace(
            tuple(outcomes),
            tuple(step for member in members for step in member.steps),
            make_gaps([gap for member in members for gap in member.ledger.gaps]),
            sum(member.kv_tokens for member in members),
            end_s,
        )
