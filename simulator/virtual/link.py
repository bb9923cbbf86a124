"""Syncs in virtual time: reports out, limits in, as in ``replicas.server.control_link``."""

from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.models.step_time import StepModel
from controller.records import YOUNG_PERIOD_S, BatchLimits, EngineReport, from_wire, to_wire
from simulator.virtual.scheduler import VirtualScheduler

REPLICA = "replay"


class VirtualLink:
    """Syncs of one engine with its own controller.

    Limits of one sync reach the engine with the next, as over the wire. Due at fixed times, a sync
    happens at the next step's end, when EngineCore runs a utility call.

    Attributes:
        config: the present batching block.
        model: published with the present limits.
        report, reported_s: the last report and its time; None before the first.
    """

    def __init__(self, scheduler: VirtualScheduler, config: BatchingConfig) -> None:
        self._scheduler = scheduler
        self.config = config
        self._loop = ControlLoop()
        self._answer: BatchLimits | None = None
        self.due_s = scheduler.now_s()
        self.model: StepModel | None = None
        self.report: EngineReport | None = None
        self.reported_s = self.due_s

    def tick(self, now_s: float) -> bool:
        """Sync if it is due; returns whether it was."""
        if now_s < self.due_s:
            return False
        answer = self._answer
        wire = self._scheduler.exchange(
            None if answer is None else to_wire(answer), REPLICA, REPLICA
        )
        if answer is not None:
            self.model = answer.model
        self.report, self.reported_s = from_wire(EngineReport, wire), now_s
        self._answer = self._loop.exchange(self.report, self.config, now_s)
        period_s = YOUNG_PERIOD_S if self.report.young else self.config.period_s
        self.due_s = max(self.due_s + period_s, now_s)
        return True
