"""Routing of requests with classes to the engines of a contest; each prefills its own requests."""

from collections.abc import Mapping, Sequence

from controller.config import Sla
from controller.roles import Transfer
from serve_app.routing.gather import End
from serve_app.routing.ways import Way
from simulator.replay.steering import Fixed, asked_of
from simulator.workloads.requests import Request

NO_LINK = Transfer(1.0, 1.0)  # no KV transfers


class ByHeadroom(Fixed):
    """``HeadroomRouter``'s choice.

    Args:
        ends: by class, for class affinity; empty: none.
    """

    def __init__(self, engines: int, seed: int, ends: Mapping[str, End]) -> None:
        super().__init__(engines, 0, NO_LINK, Sla(), seed)
        self._ends = ends

    def pick(self, request: Request, now_s: float) -> Way[int]:
        asked, places = asked_of(request), range(len(self.roles))
        chooser, end = self._ways.chooser, self._ends.get(request.service or "")
        chosen = chooser.choose(places, asked, now_s, end=end)
        chooser.sent(chosen.replica, asked, now_s)
        return Way(chosen.replica, None, chosen.wait_s)


class ByClass(Fixed):
    """An engine for each class."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(len(names), 0, NO_LINK, Sla())
        self._places = {name: place for place, name in enumerate(names)}

    def pick(self, request: Request, now_s: float) -> Way[int]:
        return Way(self._places[request.service or ""], None, None)
