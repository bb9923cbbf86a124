"""An engine of a fleet with roles, in virtual time: it computes prompts for others, or decodes.

A role is a batching block that changes while the engine runs: ``prefill`` is the plan's own without
a time between tokens, so its chunk is the whole token budget. Nothing is restarted or lost.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request as EngineRequest

from controller.records import EngineState, Role
from controller.roles import as_prefill, keeps_itl
from replicas.engine.start_order import passed_over
from replicas.engine.vllm_queues import all_waiting
from simulator.replay.fleet import Member
from simulator.virtual.ground import Ground
from simulator.virtual.plan import Plan
from simulator.virtual.transfer import VirtualConnector, of_prefill
from simulator.workloads.requests import Request

Part = Literal["whole", "prompt", "loaded"]
Load = Callable[[int, int, float], None]
"""Told of a load that begins: the request's number here, its tokens, and when, seconds."""

PARAMS: dict[Part, dict[str, Any] | None] = {
    "whole": None,
    "prompt": {"do_remote_decode": True},
    "loaded": {"do_remote_prefill": True},
}


@dataclass(frozen=True, slots=True)
class Done:
    """A prompt that was computed for another engine: its number here, and when it was."""

    number: int
    done_s: float


class RoleMember(Member):
    """One engine.

    Args:
        loads: told of every load.

    Attributes:
        role: which it is in, or on its way to, as ``controller.roles.keeps_itl`` says.
        handed: prompts that are done since this was last emptied.
    """

    def __init__(
        self, all_requests: Sequence[Request], plan: Plan, ground: Ground, loads: Load
    ) -> None:
        super().__init__(all_requests, plan, ground, VirtualConnector)
        self._loads = loads
        self._parts: list[Part] = []
        self._prompts: set[int] = set()  # numbers of those that are computed for others
        self._sending: list[tuple[float, str]] = []
        self._receiving: list[tuple[float, str]] = []
        self._stalled, self._settled_s = False, -math.inf
        self.role: Role = "mixed"
        self.handed: list[Done] = []

    @property
    def decodes(self) -> int:
        """Requests here that are answered here."""
        return len(self._ledger) + len(self._sent) - self._arrived - len(self._prompts)

    @property
    def next_s(self) -> float:
        """When it does something next."""
        if not (self._idle or self._stalled):
            return self._clock.now_s
        return max(self._clock.now_s, min(self._link.due_s, self._transfer_s))

    @property
    def _transfer_s(self) -> float:
        """When the next of its transfers is done."""
        ends = (queue[0][0] for queue in (self._sending, self._receiving) if queue)
        return min(ends, default=math.inf)

    @property
    def busy(self) -> bool:
        """Whether it has a request, or KV that is on its way."""
        return not self._idle or bool(self._sending or self._receiving)

    @property
    def report(self) -> Any:
        """Its last report."""
        return self._link.report

    def first_tokens(self) -> set[int]:
        """Numbers of the requests that have been sent a token."""
        return self._ledger.answered()

    @property
    def holds(self) -> int:
        """KV tokens that are held here."""
        return self._scheduler.state().kv_used_tokens

    def take(self, request: Request, part: Part, now_s: float) -> int:
        """One more request, or a part of one; its number here."""
        if self._stalled:
            self._clock.now_s, self._stalled = max(self._clock.now_s, now_s), False
        self._parts.append(part)
        number = len(self._parts) - 1
        if part == "prompt":
            self._prompts.add(number)
        self.send(of_prefill(request) if part == "prompt" else request, now_s)
        return number

    def sends(self, number: int, done_s: float) -> None:
        """The KV of a prompt that was computed here has been read at that time."""
        heapq.heappush(self._sending, (done_s, str(number)))

    def receives(self, number: int, done_s: float) -> None:
        """The KV of a request is here at that time."""
        heapq.heappush(self._receiving, (done_s, str(number)))

    def become(self, role: Role) -> None:
        """Take a role, at once or on its way."""
        self.role = role
        self._settle()

    def turn(self) -> None:
        super().turn()
        if self._link.reported_s > self._settled_s:
            self._settle()

    def _settle(self) -> None:
        wanted, prompts_alone = self._plan.batching, as_prefill(self._plan.batching)
        self._settled_s = self._link.reported_s
        if self.role == "prefill":
            running, without = self._scheduler.state().running, self._batching == prompts_alone
            waiting = sum(not passed_over(one) for one in all_waiting(self._scheduler))
            if not keeps_itl(running, waiting, decodes=bool(self.decodes), without=without):
                wanted = prompts_alone
        if wanted != self._batching:
            self._batching = self._link.config = wanted
            self._scheduler.configure(wanted.model_dump())

    def _works(self) -> bool:
        self._stalled = False
        return super()._works() or self._transfer_s <= self._clock.now_s

    def _made(self, number: int, request: Request, arrival_s: float) -> EngineRequest:
        params = PARAMS[self._parts[number]]
        return self._make_request(number, request, arrival_s, params and dict(params))

    def _begun(self, begin_s: float) -> None:
        connector: Any = self._scheduler.connector
        for req_id, tokens in connector.begun:
            self._loads(int(req_id), tokens, begin_s)
        connector.begun.clear()

    def _land(self, flight: Any) -> None:
        end_s = max(self._clock.now_s, flight.end_s)
        sent, received = _due(self._sending, end_s), _due(self._receiving, end_s)
        if sent or received:
            output = KVConnectorOutput(finished_sending=sent, finished_recving=received)
            self._scheduler.transferred = output
        super()._land(flight)
        self._scheduler.transferred = None
        self._stalled = flight.step is None and not (self._flights or received or sent)
        ended = [n for n in self._prompts if n < self._arrived and str(n) not in self._ledger]
        self._prompts.difference_update(ended)
        self.handed += [Done(number, self._clock.now_s) for number in sorted(ended)]

    def _check(self, tokens: int, state: EngineState) -> None:
        held = len(self._scheduler.requests) > len(self._ledger)
        if tokens or not (held or self._receiving):  # else it may have to wait for a transfer
            super()._check(tokens, state)


def _due(queue: list[tuple[float, str]], now_s: float) -> set[str] | None:
    found = set()
    while queue and queue[0][0] <= now_s:
        found.add(heapq.heappop(queue)[1])
    return found or None
