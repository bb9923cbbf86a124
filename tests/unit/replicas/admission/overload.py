"""The shape of ``make bench-overload`` and others in virtual time, without a server.

The product's own ``Admission`` in front of engines that are a step-time line, a number of slots and
a queue by priority; clients that try again as OpenAI's do. Deterministic for a seed.
"""

import functools
import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from benchmarks.overload.shapes import (
    CLASSES,
    LOADS,
    PROFILE,
    REPLICAS,
    SHARES,
    SLOTS,
    STEP_TOKENS,
    lengths,
)
from controller.classes import AdmissionConfig, ServiceClasses, parse_classes
from replicas.admission.admission import Admission
from replicas.admission.answers import LONGEST_RETRY_S
from replicas.admission.asked import Asked
from replicas.admission.drain import EngineView
from replicas.admission.waiting import Entry
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile

Lengths = Callable[[random.Random], tuple[int, int]]
REPORT_S = 0.5  # between two reports of an engine, and between two statistics of a router
RETRIES = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What is asked of which fleet.

    Args:
        shares: of each class.
        loads: each for ``seconds``, in capacities.
        time_scale: the profile's steps take so many times as long; deadlines are as given.
    """

    classes: ServiceClasses
    shares: Mapping[str, float]
    lengths: Lengths = lengths
    loads: Sequence[float] = LOADS
    seconds: float = 60.0
    replicas: int = REPLICAS
    slots: int = SLOTS
    step_tokens: int = STEP_TOKENS
    time_scale: float = 2.0

    def step_s(self, decodes: int, prompt_tokens: int) -> float:
        """How long a step takes."""
        return _profile().step_s(decodes, 0, prompt_tokens, 0) * self.time_scale

    def capacity_per_s(self) -> float:
        """1x: a share of what it serves with every slot taken and every step full of prompts.

        A request takes its share of the slots' steps, which its prompt makes longer.
        """
        rng = random.Random(0)
        drawn = [self.lengths(rng) for _ in range(2000)]
        prompt = sum(p for p, _ in drawn) / len(drawn)
        output = sum(o for _, o in drawn) / len(drawn)
        plain_s = self.step_s(self.slots, 0)
        per_token_s = (self.step_s(self.slots, 100) - plain_s) / 100
        one_s = output / self.slots * plain_s + prompt * per_token_s
        return 0.9 * self.replicas / one_s


@functools.cache
def _profile() -> StepProfile:
    return load_profile(PROFILE)


def benched(time_scale: float = 2.0, seconds: float = 60.0) -> Shape:
    """As over HTTP."""
    classes = parse_classes(CLASSES).slowed(time_scale)
    return Shape(classes, SHARES, seconds=seconds, time_scale=time_scale)


def _heavy_tail(rng: random.Random) -> tuple[int, int]:
    return rng.randint(20, 400), max(1, min(int(rng.lognormvariate(3.9, 0.9)), 600))


def _long_prompts(rng: random.Random) -> tuple[int, int]:
    return min(int(rng.lognormvariate(6.5, 1.0)) + 1, 8000), rng.randint(10, 60)


def others() -> dict[str, Shape]:
    """Other shapes, known when admission's constants were set, by what is special about each."""
    three = {
        "gold": {"ttft_ms": 2000, "priority": 0},
        "silver": {"ttft_ms": 8000, "priority": 5, "sheddable": True, "default": True},
        "batch": {"ttft_ms": 25_000, "priority": 9, "sheddable": True},
    }
    alike = {
        name: {**one, "ttft_ms": 1000, "default": name == "silver"} for name, one in three.items()
    }
    kept = {name: {**one, "sheddable": False} for name, one in three.items()}
    five = {
        "a": {"ttft_ms": 1500, "priority": -5},
        "b": {"ttft_ms": 4000, "default": True},
        "c": {"ttft_ms": 8000, "priority": 3, "sheddable": True},
        "d": {"priority": 9, "sheddable": True},
        "e": {"ttft_ms": 60_000, "priority": 11, "sheddable": True, "queue_timeout_s": 90},
    }
    spread = {"gold": 0.1, "silver": 0.5, "batch": 0.4}
    return {
        "heavy tail of lengths": Shape(
            parse_classes(CLASSES).slowed(2.0), SHARES, lengths=_heavy_tail
        ),
        "long prompts": Shape(
            parse_classes(three), spread, lengths=_long_prompts, slots=32, time_scale=1.0
        ),
        "big replicas, other steps": Shape(
            parse_classes(three), {"gold": 0.2, "silver": 0.4, "batch": 0.4},
            loads=(0.5, 3, 1, 8, 2, 1), seconds=40, replicas=4, slots=48, time_scale=1.0,
        ),
        "one deadline for all": Shape(
            parse_classes(alike), {"gold": 0.2, "silver": 0.4, "batch": 0.4},
            replicas=1, slots=64, time_scale=1.0,
        ),
        "nothing is sheddable": Shape(
            parse_classes(kept), spread, loads=(0.8, 1.2, 1.5, 3, 6, 0.8, 10, 1), seconds=40
        ),
        "five classes": Shape(
            parse_classes(five), {"a": 0.05, "b": 0.15, "c": 0.3, "d": 0.3, "e": 0.2},
            loads=(0.7, 1.5, 4, 0.9, 7, 1), replicas=3, slots=24, time_scale=1.0,
        ),
        "one class": Shape(
            parse_classes({"only": {"ttft_ms": 5000}}), {"only": 1.0}, loads=(1, 4, 1, 20, 1)
        ),
        "a ramp": Shape(
            parse_classes(CLASSES).slowed(2.0), SHARES,
            loads=(0.6, 0.8, 1, 1.3, 1.7, 2.2, 3, 4, 5, 6.5, 8, 10, 7, 4, 2, 1), seconds=15,
        ),
        "bursts": Shape(
            parse_classes(CLASSES).slowed(2.0), SHARES, loads=(1, 6) * 6 + (1,), seconds=12
        ),
    }  # fmt: skip


@dataclass(slots=True)
class Asking:
    """A client's request, and what came of it.

    Attributes:
        end: "whole", or why it was not served.
        ttft_s: from the attempt that was served; None: it was not.
    """

    name: str
    at_s: float
    prompt_tokens: int
    output_tokens: int
    attempts: int = 0
    end: str = ""
    ttft_s: float | None = None
    ended_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Inside:
    asking: Asking
    asked: Asked
    entry: Entry
    left: int
    prompt_left: int


class _Engine:
    """One replica: its queue, its running requests, its admission."""

    def __init__(self, shape: Shape) -> None:
        self.admission = Admission(shape.classes, AdmissionConfig(), shape.slots, 0.0)
        self.shape = shape
        self.queue: list[tuple[int, float, int, _Inside]] = []
        self.running: list[_Inside] = []
        self.stepping = False
        self.sent = 0  # by the router, since its statistics
        self.seen = 0

    @property
    def inside(self) -> int:
        return len(self.queue) + len(self.running)

    def start_step(self) -> tuple[float, list[tuple[_Inside, int]]]:
        """How long it takes, and what it computes of which prompt."""
        shape = self.shape
        decodes = sum(not one.prompt_left for one in self.running)
        room, chunks = shape.step_tokens - decodes, []
        prefilling = [one for one in self.running if one.prompt_left]
        while room > 0 and (prefilling or (self.queue and len(self.running) < shape.slots)):
            if prefilling:
                one = prefilling.pop(0)
            else:  # as in vLLM, one starts only where the step has tokens left for it
                one = heapq.heappop(self.queue)[3]
                self.running.append(one)
            chunk = min(one.prompt_left, room)
            room -= chunk
            chunks.append((one, chunk))
        return shape.step_s(decodes, sum(c for _, c in chunks)), chunks

    def end_step(self, chunks: list[tuple[_Inside, int]], now_s: float) -> list[_Inside]:
        """Tokens come; who is done."""
        decoding = [one for one in self.running if not one.prompt_left]
        for one, chunk in chunks:
            one.prompt_left -= chunk
            if not one.prompt_left:
                one.asking.ttft_s = now_s - one.asked.arrived_s
                self.admission.started(one.entry, now_s)
                decoding.append(one)
        for one in decoding:
            one.left -= 1
        done = [one for one in decoding if one.left <= 0]
        self.running = [one for one in self.running if one.left > 0]
        for one in done:
            self.admission.waiting.end(one.entry, now_s)
        return done

    def view(self) -> EngineView:
        """As ``engine_view`` makes it of a report."""
        running, waiting = len(self.running), len(self.queue)
        free = -waiting if waiting else self.shape.slots - running
        step_s = self.shape.step_s(running, 0)
        most = self.shape.step_tokens - running
        per_s = most / self.shape.step_s(running, most)
        return EngineView(free, running >= self.shape.slots, None, per_s, step_s)


@dataclass(slots=True)
class Seen:
    """What a run showed.

    Attributes:
        late: of those let in, by class: first token after the deadline.
        withdrawn: of those let in, by class: answered 503 before a token.
    """

    shape: Shape
    asked: list[Asking] = field(default_factory=list)
    let_in: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    withdrawn: Counter[str] = field(default_factory=Counter)
    errors_s: list[float] = field(default_factory=list)

    @property
    def late_frac(self) -> float:
        """The admitted requests that had no token by their deadline."""
        missed = self.late.total() + self.withdrawn.total()
        return missed / max(self.let_in.total(), 1)

    def goodput_per_s(self, phase: int, skip_s: float = 0.0) -> float:
        """Requests served whole and in time that ended in it."""
        seconds, by_name = self.shape.seconds, self.shape.classes.by_name
        start_s = phase * seconds + skip_s
        good = sum(
            start_s <= a.ended_s < (phase + 1) * seconds
            and a.ttft_s is not None
            and a.ttft_s <= by_name[a.name].deadline_s
            for a in self.asked
            if a.end == "whole"
        )
        return good / (seconds - skip_s)

    def goodput_at_peak(self) -> float:
        """That at the highest load, as a share of the most that any load brought."""
        loads = self.shape.loads
        goodput = [self.goodput_per_s(phase) for phase in range(len(loads))]
        return goodput[max(range(len(loads)), key=loads.__getitem__)] / max(goodput)

    def attained(self, phase: int, name: str) -> float:
        """The requests of a class, first sent in this phase, that were served in time."""
        seconds, deadline_s = self.shape.seconds, self.shape.classes.by_name[name].deadline_s
        sent = [
            a
            for a in self.asked
            if a.name == name and phase * seconds <= a.at_s < (phase + 1) * seconds
        ]
        kept = [a.end == "whole" and (a.ttft_s or 0.0) <= deadline_s for a in sent]
        return sum(kept) / max(len(kept), 1)


class Simulation:
    """One run; ``run`` returns what was seen."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape, self.rng = shape, random.Random(seed)
        self.engines = [_Engine(shape) for _ in range(shape.replicas)]
        self.seen = Seen(shape)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = count()

    def run(self) -> Seen:
        self._plan()
        for engine in self.engines:
            self._at(self.rng.uniform(0, REPORT_S), self._report(engine))
        end_s = len(self.shape.loads) * self.shape.seconds
        while self._events:
            now_s, _, what = heapq.heappop(self._events)
            if now_s > end_s + 120:
                break
            what(now_s)
        return self.seen

    def _at(self, at_s: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), what))

    def _plan(self) -> None:
        shape, rng = self.shape, self.rng
        capacity_per_s = shape.capacity_per_s()
        for phase, load in enumerate(shape.loads):
            at_s = phase * shape.seconds
            while True:
                at_s += rng.expovariate(load * capacity_per_s)
                if at_s >= (phase + 1) * shape.seconds:
                    break
                name = rng.choices(list(shape.shares), list(shape.shares.values()))[0]
                asking = Asking(name, at_s, *shape.lengths(rng))
                self.seen.asked.append(asking)
                self._at(at_s, self._attempt(asking))

    def _report(self, engine: _Engine) -> Callable[[float], None]:
        def report(now_s: float) -> None:
            engine.admission.waiting.learn(engine.view())
            engine.seen, engine.sent = engine.inside, 0
            self._at(now_s + REPORT_S, report)

        return report

    def _attempt(self, asking: Asking) -> Callable[[float], None]:
        def attempt(now_s: float) -> None:
            engine = min(self.engines, key=lambda e: (e.seen + e.sent, self.rng.random()))
            engine.sent += 1
            asking.attempts += 1
            one = self.shape.classes.by_name[asking.name]
            asked = Asked(
                asking.name, True, one.priority, one.deadline_s, one.queue_timeout_s,
                one.sheddable, now_s,
            )  # fmt: skip
            admission = engine.admission
            refused = admission.check(asked, 0, now_s, self.rng.random()) or admission.check(
                asked, asking.prompt_tokens, now_s, self.rng.random()
            )
            if refused is not None:
                assert refused.retry_s is not None
                self._again(asking, refused.reason, refused.retry_s, now_s)
                return
            entry = admission.let_in(asked, asking.prompt_tokens, now_s)
            self.seen.let_in[asking.name] += 1
            inside = _Inside(asking, asked, entry, asking.output_tokens, asking.prompt_tokens)
            heapq.heappush(engine.queue, (asked.priority, now_s, next(self._numbers), inside))
            self._at(now_s + asked.timeout_s, self._timeout(engine, inside))
            self._step(engine, now_s)

        return attempt

    def _again(self, asking: Asking, why: str, retry_s: float, now_s: float) -> None:
        if asking.attempts <= RETRIES and retry_s <= LONGEST_RETRY_S:
            self._at(now_s + retry_s, self._attempt(asking))
        else:
            asking.end, asking.ended_s = why, now_s

    def _timeout(self, engine: _Engine, inside: _Inside) -> Callable[[float], None]:
        def timeout(now_s: float) -> None:
            if inside.entry.started or inside.entry.ended:
                return
            engine.queue = [one for one in engine.queue if one[3] is not inside]
            heapq.heapify(engine.queue)
            if inside in engine.running:
                engine.running.remove(inside)
            answer = engine.admission.timed_out(
                inside.entry, inside.asked, now_s, self.rng.random()
            )
            engine.admission.waiting.end(inside.entry, now_s)
            self.seen.withdrawn[inside.asking.name] += 1
            self._again(inside.asking, answer.reason, answer.retry_s or 0.5, now_s)

        return timeout

    def _step(self, engine: _Engine, now_s: float) -> None:
        if engine.stepping or not engine.inside:
            return
        engine.stepping = True
        took_s, chunks = engine.start_step()
        self._at(now_s + took_s, self._stepped(engine, chunks))

    def _stepped(
        self, engine: _Engine, chunks: list[tuple[_Inside, int]]
    ) -> Callable[[float], None]:
        def stepped(now_s: float) -> None:
            engine.stepping = False
            done = engine.end_step([(one, n) for one, n in chunks if not one.entry.ended], now_s)
            for one, _ in chunks:
                if one.entry.started and not one.prompt_left:
                    self._judge(one, now_s)
            for one in done:
                one.asking.end, one.asking.ended_s = "whole", now_s
            self._step(engine, now_s)

        return stepped

    def _judge(self, one: _Inside, now_s: float) -> None:
        if now_s > one.entry.due_s:
            self.seen.late[one.asking.name] += 1
        if one.entry.predicted_s is not None:
            self.seen.errors_s.append(abs(one.entry.predicted_s - (now_s - one.entry.let_in_s)))
