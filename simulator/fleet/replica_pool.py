"""The replica pool of a fluid fleet: replicas start, serve, drain, and are taken away."""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from controller.config import Block
from controller.errors import ConfigError
from controller.validation import parse
from simulator.fleet.fluid import ABSENT, DRAINING, NONE, READY, Engine, Fleet, occupy, run_until
from simulator.virtual.plan import settings_of

BASE, SPOT = 0, 1


class Overflow(Block):
    """A second group of replicas, cheaper and interruptible, for the demand above the base.

    Args:
        base: replicas of the first group; all above it belong to the second. None: ``quantile``
            decides.
        price: of a replica of the second group, as a share of one of the first.
        losses_per_h: how often one of the second is taken away on average, at random times.
        notice_s: time between notice and loss.
        quantile: share of a day's time for which the first group alone carries the demand.
    """

    base: NonNegativeInt | None = None
    price: float = Field(0.35, gt=0, le=1)
    losses_per_h: NonNegativeFloat = 0.5
    notice_s: NonNegativeFloat = 120.0
    quantile: float | None = Field(None, ge=0, le=1)

    @model_validator(mode="after")
    def _has_a_base(self) -> Self:
        if (self.base is None) == (self.quantile is None):
            raise ValueError("base=N or quantile=SHARE is needed, and not both")
        return self

    def sized(self, demand: Sequence[float]) -> "Overflow":
        """These settings with a base, for the replicas that a day asks for at equal distances."""
        if self.quantile is None:
            return self
        base = math.ceil(float(np.quantile(demand, self.quantile)))
        return self.model_copy(update={"base": base, "quantile": None})


class ReplicaPool:
    """All replicas of one fleet.

    A draining replica takes no more requests and serves those it has. When it goes,
    requests without a byte of an answer are sent to another replica, as HAProxy does (decision 20);
    requests in the middle of an answer are lost.

    Args:
        fleet: has a slot for each replica that may exist at a time.
        replicas: ready at the beginning.
        overflow: the second group; None: there is none.
    """

    def __init__(
        self,
        fleet: Fleet,
        engine: Engine,
        startup_s: float,
        replicas: int,
        overflow: Overflow | None = None,
        seed: int = 0,
    ) -> None:
        self.fleet, self.names = fleet, dict[int, str]()
        self.lost = self.resent = self.taken = 0  # requests lost, sent again; replicas taken away
        self._engine, self._startup_s, self._overflow = engine, startup_s, overflow
        self._since: dict[int, float] = {}  # by slot: time of the decision to start it
        self._group: dict[int, int] = {}
        self._ends: dict[int, tuple[float, bool]] = {}  # when it gets notice, or goes (True)
        self._starting: list[tuple[float, int]] = []  # start and group; the oldest first
        self._spent_s = [0.0, 0.0]
        self._born = 0
        self._rng = np.random.default_rng(seed)
        for _ in range(replicas):
            self._open(0.0, 0.0, self._next_group())

    @property
    def ready(self) -> int:
        """Replicas that take requests."""
        return int((self.fleet.status == READY).sum())

    def work_until(self, until_s: float) -> None:
        """Let the fleet work, while replicas come and go."""
        while True:
            starts_s = self._starting[0][0] + self._startup_s if self._starting else math.inf
            ends_s = min((at_s for at_s, _ in self._ends.values()), default=math.inf)
            next_s = min(starts_s, ends_s)
            if next_s > until_s:
                break
            run_until(self.fleet, self._engine, next_s)
            if starts_s <= ends_s:
                began_s, group = self._starting.pop(0)
                self._open(began_s, starts_s, group)
            else:
                self._end(next(s for s, (at_s, _) in self._ends.items() if at_s == ends_s), ends_s)
        run_until(self.fleet, self._engine, until_s)
        for slot in [s for s in self._since if self.fleet.status[s] == ABSENT]:
            self._close(slot, until_s)

    def scale_to(self, target: int, now_s: float) -> None:
        """Like Ray Serve: cancel starts first, then drain replicas with the fewest requests.

        The second group goes before the first.
        """
        missing = target - self.ready - len(self._starting)
        for _ in range(missing):
            self._starting.append((now_s, self._next_group()))
        for _ in range(-missing):
            if self._starting:
                last = max(range(len(self._starting)), key=lambda k: (self._starting[k][1], k))
                began_s, group = self._starting.pop(last)
                self._spent_s[group] += now_s - began_s
                continue
            self.fleet.status[self._least_busy()] = DRAINING

    def replica_s(self, now_s: float) -> tuple[float, float]:
        """Seconds of the replicas of each group, from the decision to start to the end."""
        spent = list(self._spent_s)
        for slot, since_s in self._since.items():
            spent[self._group[slot]] += now_s - since_s
        for since_s, group in self._starting:
            spent[group] += now_s - since_s
        return spent[BASE], spent[SPOT]

    def _least_busy(self) -> int:
        fleet = self.fleet
        ready = np.flatnonzero(fleet.status == READY)
        busy = fleet.decodes[ready] + fleet.waiting[ready] + (fleet.prompt[ready] != NONE)
        groups = np.array([self._group[int(slot)] for slot in ready])
        return int(ready[int(np.lexsort((busy, -groups))[0])])

    def _next_group(self) -> int:
        if self._overflow is None:
            return BASE
        running = (self._group[s] for s in self._since if self.fleet.status[s] == READY)
        groups = [*running, *(group for _, group in self._starting)]
        base = self._overflow.base
        return BASE if base is None or groups.count(BASE) < base else SPOT

    def _open(self, since_s: float, now_s: float, group: int) -> None:
        free = (s for s in range(len(self.fleet.status)) if s not in self._since)
        slot = next(free, None)
        if slot is None:
            raise ConfigError(
                [
                    f"overflow: {len(self._since)} replicas are there at a time, most of them"
                    " draining: only with fewer losses_per_h, or a shorter notice_s"
                ]
            )
        occupy(self.fleet, slot, now_s)
        self._since[slot], self._group[slot] = since_s, group
        overflow = self._overflow
        if group == SPOT and overflow and overflow.losses_per_h:
            self._ends[slot] = now_s + self._rng.exponential(3600 / overflow.losses_per_h), False
        self._born += 1
        self.names[slot] = f"r{self._born}"

    def _end(self, slot: int, now_s: float) -> None:
        """A replica gets notice, or goes."""
        assert self._overflow is not None
        fleet = self.fleet
        _, goes = self._ends.pop(slot)
        if not goes:
            self.taken += 1
            if fleet.status[slot] == READY:
                fleet.status[slot] = DRAINING
            self._ends[slot] = now_s + self._overflow.notice_s, True
            return
        if fleet.status[slot] == ABSENT:  # it was done
            return
        self.lost += int(fleet.decodes[slot])
        unanswered = waiting(fleet, slot)
        self.resent += len(unanswered)
        hold_first(fleet, unanswered)
        fleet.status[slot] = ABSENT
        self._close(slot, now_s)

    def _close(self, slot: int, now_s: float) -> None:
        self._spent_s[self._group[slot]] += now_s - self._since.pop(slot)
        self._ends.pop(slot, None)
        del self.names[slot]


def waiting(fleet: Fleet, slot: int) -> list[int]:
    """Requests without a byte of an answer in this replica, by arrival."""
    found = [] if fleet.prompt[slot] == NONE else [int(fleet.prompt[slot])]
    for queue in range(fleet.head.shape[1]):
        request = int(fleet.head[slot, queue])
        while request != NONE:
            found.append(request)
            request = int(fleet.behind[request])
    return sorted(found)


def hold_first(fleet: Fleet, requests: list[int]) -> None:
    """Put these first in the queue before the fleet."""
    for request in reversed(requests):
        fleet.behind[request] = fleet.hold[0]
        if fleet.hold[0] == NONE:
            fleet.hold[1] = request
        fleet.hold[0] = request
        fleet.hold[2] += 1


def parse_overflow(text: str) -> Overflow:
    """``base=N`` or ``quantile=SHARE``, then ``price=``, ``losses_per_h=`` and so on.

    Raises:
        ConfigError: naming the key or value that is wrong, and what is allowed.
    """
    return parse(Overflow, dict(settings_of(f"overflow:{text}")), "overflow")
