"""The last minute of a replica's batch."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from controller.classes import ServiceClasses
from replicas.engine.timeline import MOST_BARS, Bar

KEPT_S = 60.0
STATES = ("waiting", "prefill", "decode", "preempted")
NO_CLASS, OWN = "requests", "a priority of their own"


class Minute:
    """The bars of the last minute. Pure."""

    def __init__(self) -> None:
        self._bars: deque[Bar] = deque(maxlen=MOST_BARS)
        self._since_s: float | None = None
        self._classes: dict[str, int] = {}  # a name keeps its index, and so its colour on the page

    def take(
        self, drained: Mapping[str, Any], names: Callable[[int], str] = lambda _: NO_CLASS
    ) -> dict[str, Any]:
        """Add an engine's ``Timeline.drain``; returns the last minute.

        Args:
            names: gives the class name of a priority.

        Returns:
            Plain JSON: ``bars`` of [id, index in ``classes``, index in ``states``, row, age of its
            begin in seconds, age of its end or null]; ``recorded_s``, the recorded time;
            ``unseen``, the number of waiting requests without a row.
        """
        now_s = drained["now_s"]
        if self._since_s is None:
            self._since_s = now_s
        self._bars.extend(tuple(bar) for bar in drained["closed"])
        while self._bars and (self._bars[0][5] or now_s) < now_s - KEPT_S:
            self._bars.popleft()
        full = len(self._bars) == MOST_BARS  # earlier bars are lost
        since_s = max(self._since_s, (self._bars[0][5] or now_s) if full else now_s - KEPT_S)
        shown = (*self._bars, *drained["open"])
        for priority in sorted({bar[1] for bar in shown}):
            self._classes.setdefault(names(priority), len(self._classes))
        bars = [
            [
                short,
                self._classes[names(priority)],
                STATES.index(state),
                row,
                round(min(now_s - from_s, KEPT_S), 3),
                None if until_s is None else round(now_s - until_s, 3),
            ]
            for short, priority, state, row, from_s, until_s in shown
        ]
        return {
            "recorded_s": round(now_s - since_s, 3),
            "states": STATES,
            "classes": list(self._classes),
            "bars": bars,
            "unseen": drained["unseen"],
        }


def class_names(classes: ServiceClasses | None) -> Callable[[int], str]:
    """Gives the class name of a priority; if several classes have it, all their names."""
    known: dict[int, str] = {}
    for name, one in classes.by_name.items() if classes else ():
        known[one.priority] = f"{known[one.priority]}, {name}" if one.priority in known else name
    return lambda priority: known.get(priority, OWN if known else NO_CLASS)
