"""Routing of requests with classes to the engines of a contest."""

import random
from collections.abc import Mapping, Sequence

from controller.records import ReplicaReport, Role
from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.gather import End
from serve_app.routing.replica_load import ReplicaLoad
from serve_app.routing.ways import Way
from simulator.replay.steering import asked_of
from simulator.workloads.requests import Request


class Routed:
    """Every engine prefills its own requests."""

    def __init__(self, engines: int) -> None:
        self.roles: list[Role] = ["mixed"] * engines

    def handed_over(self, request: Request, route: Way[int], now_s: float) -> None:
        """There are no KV transfers."""

    def hear(
        self, engine: int, report: ReplicaReport, load: ReplicaLoad | None, now_s: float
    ) -> None:
        """Routes do not depend on reports."""


class ByHeadroom(Routed):
    """``HeadroomRouter``'s choice.

    Args:
        ends: by class, for class affinity; empty: none.
    """

    def __init__(self, engines: int, seed: int, ends: Mapping[str, End]) -> None:
        super().__init__(engines)
        self._ends = ends
        self._chooser: HeadroomChooser[int] = HeadroomChooser(rng=random.Random(seed))

    def pick(self, request: Request, now_s: float) -> Way[int]:
        asked, places = asked_of(request), range(len(self.roles))
        end = self._ends.get(request.service or "")
        chosen = self._chooser.choose(places, asked, now_s, among=places, end=end)
        self._chooser.sent(chosen.replica, asked, now_s)
        return Way(chosen.replica, None, chosen.wait_s)

    def hear(
        self, engine: int, report: ReplicaReport, load: ReplicaLoad | None, now_s: float
    ) -> None:
        self._chooser.update(engine, load, now_s)


class ByClass(Routed):
    """An engine for each class."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(len(names))
        self._places = {name: place for place, name in enumerate(names)}

    def pick(self, request: Request, now_s: float) -> Way[int]:
        return Way(self._places[request.service or ""], None, None)
