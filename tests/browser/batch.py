"""A minute of a batch that never was, by the code that records a real one."""

import random
from typing import Any

from controller.classes import parse_classes
from replicas.engine.timeline import Timeline
from replicas.server.timeline_link import Minute, class_names
from serve_app.console.deployments import Deployment

CLASSES = parse_classes(
    {
        "gold": {"priority": 0},
        "silver": {"priority": 10, "default": True},
        "batch": {"priority": 20},
    }
)
SLOTS, STEP_S = 32, 0.05


class Batch:
    """A full batch with requests behind it; a second of it passes with each question."""

    def __init__(self, seconds: int = 70) -> None:
        self._random = random.Random(7)
        self._timeline, self._minute = Timeline(), Minute()
        self._waiting: list[tuple[str, int]] = []
        self._running: dict[str, tuple[int, float, float]] = {}  # priority, decodes from, ends
        self._now_s, self._names = 0.0, 0
        self._look()
        for _ in range(seconds):
            self._second()

    async def ask(self, deployment: Deployment, replica_id: str) -> dict[str, Any]:
        """As the console asks a replica."""
        self._second()
        return self._look()

    def _look(self) -> dict[str, Any]:
        return self._minute.take(self._timeline.drain(self._now_s), class_names(CLASSES))

    def _second(self) -> None:
        for _ in range(round(1 / STEP_S)):
            self._now_s += STEP_S
            self._step()

    def _step(self) -> None:
        now_s, draw = self._now_s, self._random
        while draw.random() < 0.2 + 0.2 * (now_s % 40 < 20):
            self._names += 1
            name, priority = f"r-{self._names:08x}", draw.choice([0, 10, 10, 10, 20])
            self._timeline.enter(name, priority, "waiting", now_s)
            self._waiting.append((name, priority))
        for name, (priority, from_s, until_s) in list(self._running.items()):
            if now_s >= until_s:
                self._timeline.leave(name, now_s)
                del self._running[name]
            elif from_s <= now_s < from_s + STEP_S:
                self._timeline.enter(name, priority, "decode", now_s)
            elif priority == 20 and now_s > from_s + 1 and draw.random() < 0.01:
                self._timeline.enter(name, priority, "preempted", now_s)
                del self._running[name]
                self._waiting.append((name, priority))
        self._waiting.sort(key=lambda one: one[1])
        while self._waiting and len(self._running) < SLOTS:
            name, priority = self._waiting.pop(0)
            self._timeline.enter(name, priority, "prefill", now_s)
            from_s = now_s + draw.uniform(0.1, 0.8)
            self._running[name] = priority, from_s, from_s + draw.expovariate(1 / 3.0)
