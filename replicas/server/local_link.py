"""Between one engine and the server in front of it, without a batch controller."""

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Any

from vllm.v1.engine.exceptions import EngineDeadError

from controller import metrics
from controller.records import BatchLimits, EngineReport, from_wire
from controller.version import VERSION
from replicas.engine import channel
from replicas.engine.governor import LOCAL
from replicas.engine.settings import EngineSettings
from replicas.server.complaints import Complaints
from replicas.server.metric_values import (
    StallCounter,
    Value,
    admission_totals,
    gauges,
    totals,
)
from replicas.server.prometheus import Collector

if TYPE_CHECKING:  # vLLM before 0.29 lacks what it imports
    from replicas.admission.gate import Gate

logger = logging.getLogger("vllm.brimful")  # vLLM's own handler shows it
FAILED = "The engine did not report, and is asked again: %s"


class LocalLink:
    """Reads the engine's reports, as often as a controller would; the engine decides by itself.

    Args:
        client: vLLM's ``AsyncLLM``.
        gate: None: no request is refused.
        named: application, deployment and replica, as metrics and status name them.
    """

    def __init__(
        self,
        client: Any,
        settings: EngineSettings,
        gate: "Gate | None",
        named: tuple[str, str, str],
    ) -> None:
        self._client, self._config, self._gate = client, settings.batching, gate
        self._replica, self.collector = named[2], Collector(named)
        self._stalls, self._complaints = StallCounter(), Complaints(logger)
        self._report: EngineReport | None = None
        self._told: tuple[Value, ...] = ()
        self._reported_s, self._started_unix_s = -math.inf, time.time()

    async def run(self) -> None:
        """Read reports until the engine dies."""
        while True:
            try:
                told = await asyncio.wait_for(
                    channel.exchange(self._client, None, LOCAL, LOCAL), self._config.lease_s
                )
                self._note(from_wire(EngineReport, told))
                self._complaints.over()
            except EngineDeadError:
                return
            except TimeoutError:
                late = TimeoutError(f"no report within {self._config.lease_s:g} s")
                self._complaints.log(FAILED, late)
            except Exception as error:  # after any error the server serves on
                self._complaints.log(FAILED, error)
            self._publish()
            await asyncio.sleep(self._config.period_s)

    def _note(self, report: EngineReport) -> None:
        self._report, self._reported_s = report, time.monotonic()
        if self._gate is not None:
            self._gate.learn(report, self._config.sla)
        self._told = (
            *gauges(report, self._config),
            *totals(report),
            *self._stalls.totals(report, self._config.sla),
        )

    def _publish(self) -> None:
        if self._report is None:
            return
        age_s = time.monotonic() - self._reported_s
        told = [(m, labels, age_s if m is metrics.REPORT_AGE else v) for m, labels, v in self._told]
        if self._gate is not None:
            admission = self._gate.admission
            told.append((metrics.QUEUED, (), admission.waiting.requests))
            told += admission_totals(admission)
        self.collector.values = tuple(told)

    def snapshot(self) -> dict[str, Any]:
        """Like ``BatchController.snapshot``, of this engine only; empty before its first report."""
        report, config, replicas = self._report, self._config, {}
        if report is not None:
            limits = BatchLimits(
                lease_s=config.lease_s,
                max_running=report.max_running,
                token_budget=report.token_budget,
                reason=report.reason,
                enforce=config.enforce,
                capacity_per_s=report.capacity_per_s,
                model=report.model,
                sla_out_of_reach=report.sla_out_of_reach,
                late_anyway=report.late_anyway,
            )
            replicas[self._replica] = {
                "age_s": time.monotonic() - self._reported_s,
                "batching": config,
                "report": report,
                "limits": limits,
            }
        return {
            "version": VERSION,
            "started_unix_s": self._started_unix_s,
            "switches": (),
            "groups": {LOCAL: {"policy": config.policy, "on": True, "replicas": replicas}},
            "refused": [],
            "scaling": [],
        }
