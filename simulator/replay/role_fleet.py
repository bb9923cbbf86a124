"""Several engines with roles in virtual time: prompts here, answers there, KV on its way between.

``simulator.replay.fleet`` with three things more: a request may be computed by one engine and
answered by another, roles change while it runs, and the network cards have queues.
"""

import gc
import heapq
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from controller.roles import Transfer
from serve_app.routing.ways import Way
from simulator.replay.role_member import RoleMember
from simulator.replay.steering import Steering
from simulator.virtual.ground import Ground
from simulator.virtual.plan import Plan
from simulator.virtual.trace import Outcome, Trace, make_gaps
from simulator.virtual.transfer import Cards, Moved
from simulator.workloads.requests import Request

LOOK_S = 2.0  # how often it is asked whether the rest is worth running


@dataclass(slots=True)
class _Course:
    """Where a request is: its number at its engines."""

    request: Request
    way: Way[int]
    prefill_number: int = -1
    decode_number: int = -1


@dataclass(frozen=True, slots=True)
class RoleTrace:
    """A replay of a fleet with roles.

    Args:
        trace: of all engines; a request's first token is the one that its client gets, from the
            engine that decodes it.
        moved: the transfers.
        ways: of each request that came.
        held: KV tokens held by each engine when it ended.
    """

    trace: Trace
    moved: tuple[Moved, ...]
    ways: tuple[Way[int], ...]
    held: tuple[int, ...]


class RoleFleet:
    """One replay.

    Args:
        requests: in order of arrival.
        max_late_s: where set, it ends as soon as more requests of the second half are without a
            first token so long after they came than a percentile of 99 allows.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        plan: Plan,
        ground: Ground,
        engines: int,
        transfer: Transfer,
        steering: Steering,
        max_late_s: float | None = None,
    ) -> None:
        self._requests, self._steering = list(requests), steering
        self._cards = Cards(engines, transfer)
        self._members = [
            RoleMember(requests, plan, ground, self._load_of(k)) for k in range(engines)
        ]
        self._courses: list[_Course] = []
        # By engine: a request's number there, and which it is of all.
        self._loaded: list[dict[int, int]] = [{} for _ in range(engines)]
        self._prompts: list[dict[int, int]] = [{} for _ in range(engines)]
        self._answers: list[dict[int, int]] = [{} for _ in range(engines)]
        self._events: list[tuple[float, int, Any]] = []
        self._order = count()
        self._max_late_s, self._gave_up = max_late_s, False

    def run(self, *, drain: bool = False) -> RoleTrace:
        """Serve until the last has come, or with ``drain`` until all are served."""
        collecting = gc.isenabled()
        gc.disable()  # as in a replay of one engine
        try:
            self._steer()
            end_s = self._run(drain)
        finally:
            if collecting:
                gc.enable()
        return self._close(end_s)

    def _run(self, drain: bool) -> float:
        members, requests = self._members, self._requests
        n, last_s, look_s = 0, requests[-1].arrival_s, LOOK_S
        while n < len(requests) or (drain and self._open()):
            behind = min(range(len(members)), key=lambda k: members[k].next_s)
            now_s = members[behind].next_s
            arrival_s = requests[n].arrival_s if n < len(requests) else float("inf")
            if self._events and self._events[0][0] <= min(now_s, arrival_s):
                at_s, _, act = heapq.heappop(self._events)
                act(at_s)
                continue
            if arrival_s <= now_s:
                self._come(requests[n])
                n += 1
                continue
            if self._max_late_s is not None and now_s >= look_s:
                look_s = now_s + LOOK_S
                if self._hopeless(now_s):
                    self._gave_up = True
                    return now_s
            members[behind].turn()
            self._listen(behind)
            for after in members[behind].followers:
                insort(requests, after, n, key=lambda r: r.arrival_s)
            members[behind].followers.clear()
        return max([last_s, *(m.next_s for m in members)]) if drain else last_s

    def _open(self) -> bool:
        return bool(
            any(m.busy for m in self._members)
            or any(c.way.prefill is not None and c.decode_number < 0 for c in self._courses)
        )

    def _come(self, request: Request) -> None:
        now_s = request.arrival_s
        way = self._steering.pick(request, now_s)
        course = _Course(request, way)
        self._courses.append(course)
        at = len(self._courses) - 1
        if way.prefill is None:
            course.decode_number = self._members[way.decode].take(request, "whole", now_s)
            self._answers[way.decode][course.decode_number] = at
            return
        course.prefill_number = self._members[way.prefill].take(request, "prompt", now_s)
        self._prompts[way.prefill][course.prefill_number] = at

    def _listen(self, engine: int) -> None:
        """What an engine did in its turn: prompts it ended, figures it published."""
        member = self._members[engine]
        for done in member.handed:
            at = self._prompts[engine][done.number]
            self._later(done.done_s, lambda now_s, at=at: self._hand_over(at, now_s))
        member.handed.clear()
        if (news := member.news(engine)) is not None:
            report = member.report

            def heard(now_s: float) -> None:
                self._steering.hear(engine, report, news.room, now_s)
                self._steer()

            self._later(news.heard_s, heard)

    def _later(self, at_s: float, act: Any) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), act))

    def _steer(self) -> None:
        for member, role in zip(self._members, self._steering.roles, strict=True):
            if member.role != role:
                member.become(role)

    def _hand_over(self, at: int, now_s: float) -> None:
        course = self._courses[at]
        decode = course.way.decode
        self._steering.handed_over(course.request, course.way, now_s)
        number = self._members[decode].take(course.request, "loaded", now_s)
        course.decode_number = number
        self._answers[decode][number] = self._loaded[decode][number] = at

    def _load_of(self, engine: int) -> Any:
        def begun(number: int, tokens: int, now_s: float) -> None:
            course = self._courses[self._loaded[engine][number]]
            source = course.way.prefill
            assert source is not None
            done_s = self._cards.move(source, engine, tokens, now_s)
            self._members[engine].receives(number, done_s)
            self._members[source].sends(course.prefill_number, done_s)

        return begun

    def _hopeless(self, now_s: float) -> bool:
        """Whether too many are late for certain."""
        assert self._max_late_s is not None
        half_s = (self._requests[0].arrival_s + self._requests[-1].arrival_s) / 2
        due_s = now_s - self._max_late_s
        of_half = sum(r.arrival_s >= half_s for r in self._requests)
        answered = [m.first_tokens() for m in self._members]
        late = sum(
            half_s <= c.request.arrival_s < due_s
            and (c.decode_number < 0 or c.decode_number not in answered[c.way.decode])
            for c in self._courses
        )
        return late > 0.01 * of_half + 1

    def _close(self, end_s: float) -> RoleTrace:
        traces = [m.close(end_s) for m in self._members]
        outcomes: list[Outcome] = [self._outcome(c, traces) for c in self._courses]
        gaps = [
            (float(length), float(end), self._answers[k][int(number)])
            for k, one in enumerate(traces)
            for length, end, number in zip(
                one.gaps.length_s, one.gaps.end_s, one.gaps.request, strict=True
            )
        ]
        trace = replace(
            traces[0],
            outcomes=tuple(outcomes),
            steps=tuple(step for one in traces for step in one.steps),
            gaps=make_gaps(gaps),
            stays=(),
            kv_tokens=sum(one.kv_tokens for one in traces),
            end_s=end_s,
            gave_up=self._gave_up,
        )
        ways = tuple(c.way for c in self._courses)
        held = tuple(m.holds for m in self._members)
        return RoleTrace(trace, tuple(self._cards.moved), ways, held)

    @staticmethod
    def _outcome(course: _Course, traces: Sequence[Trace]) -> Outcome:
        """What became of a request, over both of its engines."""
        way, request = course.way, course.request
        before: Outcome | None = None
        if way.prefill is not None:
            theirs = traces[way.prefill].outcomes
            if course.prefill_number < len(theirs):
                before = theirs[course.prefill_number]
        after: Outcome | None = None
        if course.decode_number >= 0:
            outcomes = traces[way.decode].outcomes
            if course.decode_number < len(outcomes):
                after = outcomes[course.decode_number]
        if after is None:
            scheduled_s = before and before.scheduled_s
            return Outcome(request, scheduled_s=scheduled_s or None)
        if before is None:
            return after
        return replace(after, scheduled_s=before.scheduled_s)
