"""The control loop that runs in a replica while no controller tells it what to do."""

import logging

from controller.config import BatchingConfig
from controller.errors import ReportError
from controller.fleet.loop import ControlLoop
from controller.records import BatchLimits, ReplicaReport

logger = logging.getLogger(__name__)


class Fallback:
    """Of one replica, on its own reports."""

    def __init__(self) -> None:
        self._loop = ControlLoop()
        self._told = False

    def exchange(
        self, report: ReplicaReport, config: BatchingConfig, now_s: float, held: BatchLimits
    ) -> BatchLimits:
        """The next limits; ``held``, those that hold, where the report cannot be true.

        It is called in the middle of vLLM's ``schedule()``, where an error would end the engine and
        all its requests for a wrong number.
        """
        try:
            return self._loop.exchange(report, config, now_s)
        except ReportError:
            if not self._told:
                logger.exception("The limits of now are kept: the engine's own report is wrong")
                self._told = True
            return held
