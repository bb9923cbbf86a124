"""An engine of a fleet, in virtual time: it computes prompts for others, or decodes, or both.

A role is a batching block that changes while the engine runs: ``prefill`` is the plan's block
without an ITL, so its chunk is the whole token budget. Nothing is restarted or lost.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request as EngineRequest

from controller.records import EngineReport, EngineState, Role
from controller.roles import as_prefill, keeps_itl
from replicas.engine.start_order import passed_over
from replicas.engine.vllm_queues import all_waiting
from replicas.server.routing_stats import KEY, routing_stats
from serve_app.routing.replica_load import ReplicaLoad, read_room
from simulator.replay.engine import Engine, Flight
from simulator.virtual.plan import Plan
from simulator.virtual.scenario import Scenario
from simulator.virtual.transfer import VirtualConnector, of_prefill
from simulator.workloads.requests import Request

Part = Literal["whole", "prompt", "loaded"]
OnTransfer = Callable[[int, int, float], None]
"""Called when a KV transfer begins: the request's number, its tokens, the time in seconds."""

PARAMS: dict[Part, dict[str, Any] | None] = {
    "whole": None,
    "prompt": {"do_remote_decode": True},
    "loaded": {"do_remote_prefill": True},
}


class Member(Engine):
    """One engine.

    Args:
        on_transfer: called for every KV transfer to this engine.

        Attributes:
            role: the role it is in or changes to (``controller.roles.keeps_itl``).
            prefilled: numbers of computed prompts, since it was last emptied.
    """

    def __init__(
        self,
        all_requests: Sequence[Request],
        plan: Plan,
        scenario: Scenario,
        on_transfer: OnTransfer,
    ) -> None:
        super().__init__(all_requests, plan, scenario, VirtualConnector)
        self._plan, self._batching = plan, plan.batching
        self._on_transfer = on_transfer
        self._parts: dict[int, Part] = {}
        self._prompts: set[int] = set()  # numbers of prompts computed for others
        self._sending: list[tuple[float, str]] = []
        self._receiving: list[tuple[float, str]] = []
        self._stalled, self._settled_s, self._told_s = False, -math.inf, -math.inf
        self.role: Role = "mixed"
        self.prefilled: list[int] = []

    @property
    def next_s(self) -> float:
        if not (self.idle or self._stalled):
            return self.now_s
        return max(self.now_s, min(self._link.due_s, self._transfer_s))

    @property
    def _transfer_s(self) -> float:
        """The end of its next transfer."""
        ends = (queue[0][0] for queue in (self._sending, self._receiving) if queue)
        return min(ends, default=math.inf)

    @property
    def busy(self) -> bool:
        """Whether it has a request or a KV transfer."""
        return not self.idle or bool(self._sending or self._receiving)

    @property
    def holds(self) -> int:
        """KV tokens held here."""
        return self._scheduler.state().kv_used_tokens

    def take(self, number: int, request: Request, part: Part, now_s: float) -> None:
        """Take a request, or a part of one."""
        if self._stalled:
            self._clock.now_s, self._stalled = max(self.now_s, now_s), False
        self._parts[number] = part
        if part == "prompt":
            self._prompts.add(number)
            request = of_prefill(request)
        self.send(number, request, now_s)

    def sends(self, number: int, done_s: float) -> None:
        """The KV of a prompt computed here will have been read at that time."""
        heapq.heappush(self._sending, (done_s, str(number)))

    def receives(self, number: int, done_s: float) -> None:
        """The KV of a request will be here at that time."""
        heapq.heappush(self._receiving, (done_s, str(number)))

    def become(self, role: Role) -> None:
        """Take a role, now or once ``keeps_itl`` permits it."""
        self.role = role
        self._settle()

    def news(self) -> tuple[float, EngineReport, ReplicaLoad | None] | None:
        """Its report since the last call: when, the report, and its load for routing."""
        report, at_s = self._link.report, self._link.reported_s
        if report is None or at_s <= self._told_s:
            return None
        self._told_s = at_s
        return at_s, report, read_room({KEY: routing_stats(report, self._batching, at_s)})

    def end_turn(self) -> None:
        self._stalled = False
        if not self.idle or self._transfer_s <= self.now_s:
            self._iterate()
        if self._link.reported_s > self._settled_s:
            self._settle()

    def _settle(self) -> None:
        wanted, prompts_alone = self._plan.batching, as_prefill(self._plan.batching)
        self._settled_s = self._link.reported_s
        if self.role == "prefill":
            running, without = self._scheduler.state().running, self._batching == prompts_alone
            waiting = sum(not passed_over(one) for one in all_waiting(self._scheduler))
            decodes = len(self.ledger) + len(self._sent) > len(self._prompts)
            if not keeps_itl(running, waiting, decodes=decodes, without=without):
                wanted = prompts_alone
        if wanted != self._batching:
            self._batching = self._link.config = wanted
            self._scheduler.configure(wanted.model_dump())

    def _made(self, number: int, request: Request) -> EngineRequest:
        params = PARAMS[self._parts[number]]
        return self._make_request(number, request, request.arrival_s, params and dict(params))

    def _begun(self, begin_s: float) -> None:
        connector: Any = self._scheduler.connector
        for req_id, tokens in connector.begun:
            self._on_transfer(int(req_id), tokens, begin_s)
        connector.begun.clear()

    def _land(self, flight: Flight) -> None:
        end_s = max(self.now_s, flight.end_s)
        sent, received = _due(self._sending, end_s), _due(self._receiving, end_s)
        if sent or received:
            output = KVConnectorOutput(finished_sending=sent, finished_recving=received)
            self._scheduler.transferred = output
        super()._land(flight)
        self._scheduler.transferred = None
        self._stalled = flight.step is None and not (self._flights or received or sent)
        here = {number for number, _ in self._sent}
        ended = {n for n in self._prompts - here if str(n) not in self.ledger}
        self._prompts -= ended
        self.prefilled += sorted(ended)

    def _check(self, tokens: int, state: EngineState) -> None:
        held = len(self._scheduler.requests) > len(self.ledger)
        if tokens or not (held or self._receiving):  # else it may wait for a transfer
            super()._check(tokens, state)


def _due(queue: list[tuple[float, str]], now_s: float) -> set[str] | None:
    found = set()
    while queue and queue[0][0] <= now_s:
        found.add(heapq.heappop(queue)[1])
    return found or None
