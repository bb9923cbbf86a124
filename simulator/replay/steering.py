"""Roles and routes of a fleet: fixed, or by the production code.

``Auto`` gets the engines' reports and routing statistics slightly late, as through Ray Serve's
controller. ``controller.roles`` decides the number of prefill engines, and
``serve_app.routing.ways`` the route of each request.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from controller.config import Sla
from controller.fleet.role_pool import carried, requests_at
from controller.law.rows import RowHistory
from controller.law.step_model import GUESS_STEPS, Fit, guess
from controller.models.step_time import StepStats, fit
from controller.records import ReplicaReport, Role
from controller.roles import Fleet, RoleChooser, Split, Transfer
from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.replica_load import Asked, ReplicaLoad
from serve_app.routing.ways import Way, WayChooser
from simulator.workloads.requests import Request

UNKNOWN_ITL_S = 0.05


def asked_of(request: Request) -> Asked:
    """The request as the router knows it."""
    return Asked(request.input_tokens, request.max_tokens)


class Fixed:
    """The first engines compute prompts, the others decode; by headroom, as ``HeadroomRouter``.

    Args:
        direct: decode engines compute prompts as well if that is sooner.
    """

    def __init__(
        self,
        engines: int,
        prefill: int,
        transfer: Transfer,
        sla: Sla,
        seed: int = 0,
        *,
        direct: bool = False,
    ) -> None:
        self.roles: list[Role] = ["prefill" if k < prefill else "mixed" for k in range(engines)]
        self._reports: dict[int, ReplicaReport] = {}
        chooser: HeadroomChooser[int] = HeadroomChooser(rng=random.Random(seed))
        itl_s = sla.itl_s or UNKNOWN_ITL_S
        self._ways = WayChooser(
            chooser,
            transfer.wire_s,
            transfer.handover_s(itl_s),
            direct=direct or not prefill,
        )

    def pick(self, request: Request, now_s: float) -> Way[int]:
        """The route of a request, by the numbers of engines."""
        return self._ways.choose(
            self._in_role("mixed"), self._in_role("prefill"), asked_of(request), now_s
        )

    def _in_role(self, role: Role) -> Sequence[int]:
        return [k for k, one in enumerate(self.roles) if one == role]

    def handed_over(self, request: Request, route: Way[int], now_s: float) -> None:
        """A prompt is computed, and the request goes to the decoding engine."""
        self._ways.handed_over(route.decode, asked_of(request), now_s)

    def hear(
        self, engine: int, report: ReplicaReport, load: ReplicaLoad | None, now_s: float
    ) -> None:
        """Take an engine's report and statistics; ``roles`` may change."""
        self._ways.chooser.update(engine, load, now_s)
        self._reports[engine] = report

    def _assign(self, wanted: int) -> None:
        """Change the role of the engine with the fewest requests."""
        while (now := self.roles.count("prefill")) != wanted:
            source: Role = "mixed" if now < wanted else "prefill"
            emptiest = min(self._in_role(source), key=lambda k: requests_at(self._reports[k]))
            self.roles[emptiest] = "prefill" if now < wanted else "mixed"


class Auto(Fixed):
    """Roles by what the fleet is forecast to carry with each number of prefill engines."""

    def __init__(self, engines: int, transfer: Transfer, sla: Sla, seed: int = 0) -> None:
        super().__init__(engines, 0, transfer, sla, seed, direct=True)
        self._transfer, self._sla = transfer, sla
        self._chooser = RoleChooser()
        self._rows: dict[int, RowHistory] = {}
        self._stats: dict[int, StepStats] = {}  # by engine

    def hear(
        self, engine: int, report: ReplicaReport, load: ReplicaLoad | None, now_s: float
    ) -> None:
        super().hear(engine, report, load, now_s)
        history = self._rows.setdefault(engine, RowHistory())
        history.add(report.rows)
        prior = guess(self._sla.itl_s or UNKNOWN_ITL_S)
        own = Fit(history.rows, prior, GUESS_STEPS, report.engine.graph_tokens)
        self._stats[engine] = own.stats
        found = self._found()
        if not found:
            return
        before, wanted = self._chooser.prefill, self._chooser.see(found, now_s)
        if wanted != before:
            self._assign(wanted)

    def _found(self) -> tuple[Split, ...]:
        """What each number of prefill engines would carry; empty if unknown."""
        reports = self._reports
        if len(reports) < len(self.roles):
            return ()
        mixed = [reports[k] for k in self._in_role("mixed")]
        model = fit(sum(self._stats.values(), StepStats()))
        if model is not None:  # with the tail that the mixed ones measured
            tails = [one.model.tail_frac for one in mixed if one.model]
            model = replace(model, tail_frac=median(tails) if tails else 0.0)
        of = next(iter(reports.values())).engine
        fleet = Fleet(len(reports), of.max_num_seqs, of.max_num_batched_tokens, of.kv_tokens)
        return carried(mixed, fleet, self._transfer, self._sla, model)
