"""Engines that died lately, and the outcomes of their requests. Pure.

The replica of a dead engine ends within a minute, before its metrics are scraped, so the controller
counts.
"""

from collections.abc import Callable
from typing import Any

SHOWN_S = 3600.0
MOVING = "moving"  # not final

Count = Callable[[float, dict[str, str]], None]


class EngineDeaths:
    """Args:
    died, became, gap_s: count engines, requests by outcome, and seconds without tokens.
    """

    def __init__(self, died: Count, became: Count, gap_s: Count) -> None:
        self._died, self._became, self._gap_s = died, became, gap_s
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}  # by replica: time, report

    def told(self, told: dict[str, Any], now_s: float) -> None:
        """Count the present outcomes of the requests of a replica whose engine died.

        Args:
            told: ``replica``, ``group``, ``outcomes`` (requests by outcome), ``gap_s``.
        """
        replica, group = told["replica"], {"group": told["group"]}
        at_s, before = self._known.get(replica, (now_s, {"outcomes": {}, "gap_s": 0.0}))
        if replica not in self._known:
            self._died(1, group)
        for outcome, count in told["outcomes"].items():
            new = count - before["outcomes"].get(outcome, 0)
            if new > 0 and outcome != MOVING:
                self._became(new, {**group, "outcome": outcome})
        if (new_s := told["gap_s"] - before["gap_s"]) > 0:
            self._gap_s(new_s, group)
        self._known[replica] = at_s, told

    def snapshot(self, now_s: float) -> list[dict[str, Any]]:
        """The last report on each engine that died in the last hour, with ``died_s_ago``."""
        return [
            {**told, "died_s_ago": now_s - at_s}
            for at_s, told in self._known.values()
            if now_s - at_s < SHOWN_S
        ]
