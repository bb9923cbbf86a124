"""Which request holds which slot of the batch, recorded while a console looks.

vLLM has no slots: a running request gets the lowest free row, a waiting or preempted one the lowest
free row of those that wait. Only ``TimelineRecorder`` has a clock.
"""

from collections import deque
from functools import partial
from heapq import heappop, heappush
from typing import Any, Literal

from replicas.engine.hooks import beside, hook
from replicas.engine.recorder import Recorder
from replicas.engine.vllm_queues import in_order

State = Literal["waiting", "prefill", "decode", "preempted"]
Bar = tuple[str, int, State, int, float, float | None]
"""One request in one state: the end of vLLM's own id (no part of the client's), priority, state,
row (a slot from 0; a waiting one from -1 down), begin and end (engine clock, s)."""

MOST_BARS = 4000  # kept between two drains; older ones are lost
MOST_WAITING = 64  # rows for waiting requests; the others are counted
ID_CHARACTERS = 8


class Rows:
    """Rows that are taken and given back, the lowest first.

    Args:
        most: how many there are; None: any number.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most, self._used, self._free = most, 0, list[int]()

    def take(self) -> int | None:
        """Take the lowest free row; None if there is none."""
        if self._free:
            return heappop(self._free)
        if self._used == self._most:
            return None
        self._used += 1
        return self._used - 1

    def give_back(self, row: int) -> None:
        """Free a row."""
        heappush(self._free, row)


class Timeline:
    """Bars of requests: open ones, and ones that ended since the last call."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, State, int | None, float]] = {}
        self._closed: deque[Bar] = deque(maxlen=MOST_BARS)
        self._slots, self._waiting = Rows(), Rows(MOST_WAITING)

    def enter(self, request_id: str, priority: int, state: State, now_s: float) -> None:
        """A request enters a state; its bar before ends."""
        before = self._close(request_id, now_s)
        if state in ("waiting", "preempted"):
            row = self._waiting.take()
            row = None if row is None else -1 - row
        else:
            # The row stays from prefill to decode.
            row = self._slots.take() if before is None or before < 0 else before
        if before is not None and before != row:
            self._give_back(before)
        self._open[request_id] = priority, state, row, now_s

    def leave(self, request_id: str, now_s: float) -> None:
        """A request is gone."""
        row = self._close(request_id, now_s)
        if row is not None:
            self._give_back(row)

    def state(self, request_id: str) -> State | None:
        """The state of a request; None if it is unknown."""
        known = self._open.get(request_id)
        return known and known[1]

    def drain(self, now_s: float) -> dict[str, Any]:
        """Bars that ended since the last call, and open ones; primitives alone."""
        closed, unseen = list(self._closed), 0
        self._closed.clear()
        bars: list[Bar] = []
        for request_id, (priority, state, row, from_s) in self._open.items():
            if row is None:
                unseen += 1
            else:
                bars.append((request_id[-ID_CHARACTERS:], priority, state, row, from_s, None))
        return {"now_s": now_s, "closed": closed, "open": bars, "unseen": unseen}

    def _close(self, request_id: str, now_s: float) -> int | None:
        """End the bar of a request; its row."""
        known = self._open.pop(request_id, None)
        if known is None:
            return None
        priority, state, row, from_s = known
        if row is not None and now_s > from_s:
            short = request_id[-ID_CHARACTERS:]
            self._closed.append((short, priority, state, row, from_s, now_s))
        return row

    def _give_back(self, row: int) -> None:
        if row < 0:
            self._waiting.give_back(-1 - row)
        else:
            self._slots.give_back(row)


class TimelineRecorder(Recorder):
    """Tells a timeline what a scheduler does."""

    def __init__(self, scheduler: Any, *owner: Any) -> None:
        super().__init__(scheduler, *owner)
        self.timeline, self._fresh = Timeline(), True
        self._before_first: dict[str, int] = {}  # in prefill: tokens generated before
        now_s = scheduler.now_s()
        for request in scheduler.running:
            self._starts(request, now_s)
        self._note_decodes(now_s, dict.fromkeys(self._before_first, 0))
        for request in in_order(scheduler):
            self._waits(request, now_s)
        around = partial(beside, scheduler.guard, "the timeline")
        self._unhook = hook(
            scheduler,
            {
                "add_request": around(self._comes),
                "schedule": around(after=self._begun),
                "update_from_output": around(after=self._updated),
                "_preempt_request": around(self._stops),
                "_free_request": around(self._leaves),
            },
        )

    def drain(self) -> dict[str, Any]:
        """``Timeline.drain``; ``fresh``: whether the recording began since the last call."""
        super().drain()
        fresh, self._fresh = self._fresh, False
        return {**self.timeline.drain(self._scheduler.now_s()), "fresh": fresh}

    def _comes(self, request: Any) -> None:
        if self.timeline.state(request.request_id) is None:  # else: more input of a session
            self._waits(request, self._scheduler.now_s())

    def _updated(self, outputs: Any) -> None:
        if self._before_first:
            self._note_decodes(self._scheduler.now_s(), self._before_first)

    def _begun(self, output: Any) -> None:
        if not self._is_asked():
            return
        begun = [new.req_id for new in output.scheduled_new_reqs]
        for req_id in (*begun, *output.scheduled_cached_reqs.resumed_req_ids):
            if (request := self._scheduler.requests.get(req_id)) is not None:
                self._starts(request, self._scheduler.now_s())

    def _stops(self, request: Any) -> None:
        self._before_first.pop(request.request_id, None)
        now_s = self._scheduler.now_s()
        self.timeline.enter(request.request_id, request.priority, "preempted", now_s)

    def _leaves(self, request: Any) -> None:
        self._before_first.pop(request.request_id, None)
        self.timeline.leave(request.request_id, self._scheduler.now_s())

    def _waits(self, request: Any, now_s: float) -> None:
        state: State = "preempted" if request.num_output_tokens else "waiting"
        self.timeline.enter(request.request_id, request.priority, state, now_s)

    def _starts(self, request: Any, now_s: float) -> None:
        self.timeline.enter(request.request_id, request.priority, "prefill", now_s)
        self._before_first[request.request_id] = request.num_output_tokens

    def _note_decodes(self, now_s: float, among: dict[str, int]) -> None:
        """Requests with a new token since they started decode now."""
        requests = self._scheduler.requests
        decoding = [
            request
            for req_id, before in among.items()
            if (request := requests.get(req_id)) is not None and request.num_output_tokens > before
        ]
        for request in decoding:
            del self._before_first[request.request_id]
            self.timeline.enter(request.request_id, request.priority, "decode", now_s)
