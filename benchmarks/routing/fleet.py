"""Replicas in virtual time behind a router: what each way of routing costs, without an engine.

A replica is a step-time model, a cap and a step that is sized to the SLA, first come, first served.
Its figures reach the router as over Ray Serve's controller: twice a second, a moment old.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.room import Asked, Room
from simulator.workloads.requests import Request

STATS_PERIOD_S, STATS_DELAY_S = 0.5, 0.25
FLIGHT_S = 0.01


@dataclass(frozen=True, slots=True)
class Speed:
    """A step takes fixed + per decode + per prompt token, seconds; prompts get what is left."""

    fixed_s: float = 0.012
    per_decode_s: float = 0.0002
    per_prompt_token_s: float = 0.00006
    step_s: float = 0.05
    max_running: int = 128

    def slower(self, factor: float) -> "Speed":
        """The same engine on a clock that is so many times slower; its steps stay as long."""
        return Speed(
            self.fixed_s * factor,
            self.per_decode_s * factor,
            self.per_prompt_token_s * factor,
            self.step_s,
            self.max_running,
        )

    def prompt_tokens(self, decodes: int) -> int:
        """How many of them fit in a step beside so many decodes; at least a block."""
        left_s = self.step_s - self.fixed_s - decodes * self.per_decode_s
        return max(int(left_s / self.per_prompt_token_s), 16)


@dataclass(slots=True)
class Served:
    """One request and what became of it."""

    request: Request
    prompt_left: int
    output_left: int
    first_s: float | None = None
    gaps_s: list[float] = field(default_factory=list)
    last_s: float = 0.0

    @property
    def ttft_s(self) -> float:
        assert self.first_s is not None, "it was not served"
        return self.first_s - self.request.arrival_s


class Replica:
    """One engine; ``step`` does the next one."""

    def __init__(self, speed: Speed) -> None:
        self.speed = speed
        self.running: list[Served] = []
        self.waiting: deque[Served] = deque()
        self.arrivals = 0
        self.outstanding = 0

    def add(self, served: Served) -> None:
        self.waiting.append(served)
        self.arrivals += 1

    def step_s(self) -> tuple[float, list[tuple[Served, int]]]:
        """How long the next step takes, and what it computes of which request's prompt."""
        while self.waiting and len(self.running) < self.speed.max_running:
            self.running.append(self.waiting.popleft())
        decodes = sum(not one.prompt_left for one in self.running)
        left, chunks = self.speed.prompt_tokens(decodes), []
        for one in self.running:
            if one.prompt_left and left:
                chunk = min(one.prompt_left, left)
                left -= chunk
                chunks.append((one, chunk))
        tokens = sum(chunk for _, chunk in chunks)
        speed = self.speed
        took_s = speed.fixed_s + decodes * speed.per_decode_s + tokens * speed.per_prompt_token_s
        return took_s, chunks

    def finish(self, chunks: list[tuple[Served, int]], now_s: float) -> None:
        """A step is done."""
        decoding = [one for one in self.running if not one.prompt_left]
        for one, chunk in chunks:
            one.prompt_left -= chunk
            if not one.prompt_left:
                one.first_s = one.last_s = now_s
                one.output_left -= 1
        for one in decoding:
            one.gaps_s.append(now_s - one.last_s)
            one.last_s = now_s
            one.output_left -= 1
        ended = [one for one in self.running if not one.prompt_left and one.output_left <= 0]
        if ended:
            self.outstanding -= len(ended)
            self.running = [one for one in self.running if one.prompt_left or one.output_left > 0]

    def room(self, now_s: float) -> Room:
        """What it would publish now."""
        decodes = sum(not one.prompt_left for one in self.running)
        fit = self.speed.prompt_tokens(decodes)
        step_s = self.speed.fixed_s + decodes * self.speed.per_decode_s
        requests = [*self.running, *self.waiting]
        return Room(
            taken_unix_s=now_s,
            running=len(self.running),
            waiting=len(self.waiting),
            max_running=self.speed.max_running,
            prompt_backlog_tokens=sum(one.prompt_left for one in requests),
            kv_free_tokens=10**9,
            arrivals=self.arrivals,
            prefill_tokens_per_s=fit / (step_s + fit * self.speed.per_prompt_token_s),
            drain_per_s=5.0,
        )


class Router:
    """Round robin, and what the others have in common."""

    def __init__(self, replicas: Sequence[Replica], seed: int) -> None:
        self.replicas = replicas
        self.random = random.Random(seed)
        self.turn = count()

    def pick(self, request: Request, now_s: float) -> int:
        return next(self.turn) % len(self.replicas)

    def told(self, index: int, room: Room, now_s: float) -> None:
        """Statistics of a replica came."""


class AtRandom(Router):
    """Ray Serve's power of two choices under direct streaming: the first of two that it drew."""

    def pick(self, request: Request, now_s: float) -> int:
        return self.random.randrange(len(self.replicas))


class FewestOutstanding(Router):
    """Power of two choices by requests that have not ended, known exactly at every moment."""

    def pick(self, request: Request, now_s: float) -> int:
        drawn = self.random.sample(range(len(self.replicas)), 2)
        return min(drawn, key=lambda index: self.replicas[index].outstanding)


class LeastOpen(Router):
    """HAProxy's leastconn: the fewest open requests, known exactly where all come through one."""

    def pick(self, request: Request, now_s: float) -> int:
        fewest = min(replica.outstanding for replica in self.replicas)
        drawn = [k for k, one in enumerate(self.replicas) if one.outstanding == fewest]
        return self.random.choice(drawn)


class LeastLoad(Router):
    """The fewest running and waiting requests by the last statistics, whatever was sent since."""

    def __init__(self, replicas: Sequence[Replica], seed: int) -> None:
        super().__init__(replicas, seed)
        self.load = [0] * len(replicas)

    def pick(self, request: Request, now_s: float) -> int:
        fewest = min(self.load)
        return self.random.choice([k for k, load in enumerate(self.load) if load == fewest])

    def told(self, index: int, room: Room, now_s: float) -> None:
        self.load[index] = room.running + room.waiting


class Headroom(Router):
    """What ``HeadroomRouter`` decides by."""

    def __init__(self, replicas: Sequence[Replica], seed: int) -> None:
        super().__init__(replicas, seed)
        self.chooser: HeadroomChooser[int] = HeadroomChooser(rng=self.random)

    def pick(self, request: Request, now_s: float) -> int:
        asked = Asked(request.input_tokens, request.max_tokens)
        chosen = self.chooser.choose(range(len(self.replicas)), asked, now_s).replica
        self.chooser.sent(chosen, asked, now_s)
        return chosen

    def told(self, index: int, room: Room, now_s: float) -> None:
        self.chooser.update(index, room, now_s)


ROUTERS: dict[str, type[Router]] = {
    "round_robin": Router,
    "power_of_two": AtRandom,
    "outstanding": FewestOutstanding,
    "haproxy": LeastOpen,
    "least_load": LeastLoad,
    "headroom": Headroom,
}


def serve(
    router: str, speeds: Sequence[Speed], requests: Sequence[Request], seed: int = 0
) -> list[Served]:
    """Serve the requests to their ends; in the order in which they came."""
    replicas = [Replica(speed) for speed in speeds]
    routed = ROUTERS[router](replicas, seed)
    events: list[tuple[float, int, Callable[[float], None]]] = []
    order, busy, open_requests = count(), [False] * len(replicas), len(requests)

    def at(time_s: float, what: Callable[[float], None]) -> None:
        heapq.heappush(events, (time_s, next(order), what))

    def start_step(index: int, now_s: float) -> None:
        replica = replicas[index]
        busy[index] = bool(replica.waiting or replica.running)
        if busy[index]:
            took_s, chunks = replica.step_s()
            at(now_s + took_s, lambda end_s: end_step(index, chunks, end_s))

    def end_step(index: int, chunks: list[tuple[Served, int]], now_s: float) -> None:
        nonlocal open_requests
        before = replicas[index].outstanding
        replicas[index].finish(chunks, now_s)
        open_requests -= before - replicas[index].outstanding
        start_step(index, now_s)

    def come(served: Served, now_s: float) -> None:
        index = routed.pick(served.request, now_s)
        replicas[index].outstanding += 1
        at(now_s + FLIGHT_S, lambda then_s: enter(index, served, then_s))

    def enter(index: int, served: Served, now_s: float) -> None:
        replicas[index].add(served)
        if not busy[index]:
            start_step(index, now_s)

    def publish(index: int, now_s: float) -> None:
        room = replicas[index].room(now_s)
        at(now_s + STATS_DELAY_S, lambda then_s: routed.told(index, room, then_s))
        if open_requests:
            at(now_s + STATS_PERIOD_S, lambda then_s: publish(index, then_s))

    all_served = [Served(r, r.input_tokens, r.output_tokens) for r in requests]
    for served in all_served:
        at(served.request.arrival_s, lambda now_s, served=served: come(served, now_s))  # type: ignore[misc]
    for index in range(len(replicas)):
        at(index * STATS_PERIOD_S / len(replicas), lambda now_s, k=index: publish(k, now_s))  # type: ignore[misc]
    while events:
        now_s, _, what = heapq.heappop(events)
        what(now_s)
    return all_served
