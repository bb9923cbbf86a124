"""The link between one engine and the batch controller: reports out, limits in."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ray.exceptions import RayTaskError
from vllm.v1.engine.exceptions import EngineDeadError

from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.fleet.actor import get_controller
from controller.law.client_feedback import ClientFeedback, Gaps
from controller.records import (
    YOUNG_PERIOD_S,
    EngineReport,
    Mode,
    ReplicaReport,
    Role,
    from_wire,
)
from controller.roles import as_prefill
from replicas.engine import channel
from replicas.server.complaints import Complaints
from replicas.server.egress import LeavingTokens
from replicas.server.metrics import ReplicaMetrics
from replicas.server.routing_stats import KEY, PREFILL, routing_stats

logger = logging.getLogger("ray.serve")

REPORTED = tuple(field.name for field in fields(ReplicaReport))
ENGINE_FAILED = "The sync with the engine failed, and is tried again: %s"
REFUSED = "The batch controller refused the report: %s"
SEARCH_S = 2.0  # of waiting for the controller per sync; the search goes on


class ControlLink:
    """Carries reports to the controller and its limits to the engine.

    A controller that is gone, slow or refuses the report only costs its limits: the engine goes on
    with its last lease, then with the local fallback. Syncs end only with the engine's death, which
    Ray Serve LLM's health check notices.
    """

    def __init__(
        self,
        client: channel.EngineClient,
        config: BatchingConfig,
        *,
        replica_id: str,
        group: str,
        metrics: ReplicaMetrics,
        leaving: LeavingTokens,
        on_report: Callable[[EngineReport], None] = lambda _: None,
    ) -> None:
        self._client, self._leaving = client, leaving
        self._clock = ClientFeedback(config.sla.percentile)
        self._go_by(config)
        self._replica_id, self._group = replica_id, group
        self._metrics, self._on_report = metrics, on_report
        self._controller: Any = None  # an actor handle; None: unknown
        self._finding: asyncio.Task[Any] | None = None  # a search for it in progress
        self._report: EngineReport | None = None
        self._reported_s = asyncio.get_running_loop().time()  # time of the last report
        self._asked_engine_s: float | None = None  # time of its oldest unanswered call
        self._answered_s = self._reported_s  # time of the controller's last answer
        self._ask_s = -math.inf  # time of its next request
        self._crowded = False  # its periods are longer than configured
        self._complaints = Complaints(logger)
        self.role: Role | None = None  # the controller's last
        self._leaves = False  # its replica is being removed
        # Why the last user_config was refused.
        self.config_refused: str | None = None

    def _go_by(self, config: BatchingConfig) -> None:
        self._config, self._batching = config, config.model_dump()
        sized = config.policy == "adaptive"  # other policies do not size steps
        self._leaving.limit_s = config.sla.itl_s if sized and self._leaving.on else None

    async def run(self) -> None:
        """Sync until the engine dies."""
        clock = asyncio.get_running_loop().time
        answer: dict[str, Any] | None = None
        while True:
            next_s = clock() + self._config.period_s
            applied, answer = answer, None  # an answer that cannot be applied is not sent again
            self._asked_engine_s = self._asked_engine_s or clock()
            try:
                report = await asyncio.wait_for(
                    channel.exchange(
                        self._client,
                        applied,
                        self._replica_id,
                        self._group,
                        self._clock.itl_frac,
                    ),
                    timeout=self._config.lease_s,
                )
                self._asked_engine_s = None
                report |= {"config_refused": self.config_refused, "leaving": self._leaves}
                told = from_wire(EngineReport, report)
                self._note(told, clock())
                often = told.young and not self._crowded
                if often:
                    next_s = min(next_s, clock() + YOUNG_PERIOD_S)
                if often or clock() >= self._ask_s:
                    self._ask_s = clock() - self._config.period_s
                    answer = await self._ask({name: report[name] for name in REPORTED})
                    if answer:
                        self._ask_s += answer["period_s"]
                        self._crowded = answer["period_s"] > self._config.period_s
                self._metrics.publish_controller_age(clock() - self._answered_s)
                if answer is not None and list(answer["switches"]) != list(report["switches"]):
                    next_s = clock()  # control was switched: apply it now, not in half a second
            except EngineDeadError:
                return
            except Exception as error:  # after any error the replica serves on
                answer = None
                if not isinstance(error, TimeoutError):  # an error is an answer, too
                    self._asked_engine_s = None
                self._metrics.publish_age(clock() - self._reported_s)
                self._complaints.log(ENGINE_FAILED, error)
            await asyncio.sleep(max(next_s - clock(), 0))

    @property
    def config(self) -> BatchingConfig:
        """The configured block."""
        return self._config

    async def configure(self, config: BatchingConfig) -> None:
        """Make the engine, and the controller from the next report on, use ``config``.

        Raises:
            ConfigError: ``config`` does not fit the engine; nothing was changed.
        """
        if config == self._config:
            return
        try:
            await channel.configure(self._client, config.model_dump())
        except EngineDeadError:
            return  # Ray Serve LLM's health check notices it
        except Exception as error:
            raise ConfigError([str(error)]) from None
        if config.sla != self._config.sla:
            self._clock = ClientFeedback(config.sla.percentile)
        self._go_by(config)
        logger.info("Replica %s uses a changed batching block.", self._replica_id)

    async def _ask(self, report: dict[str, Any]) -> dict[str, Any] | None:
        try:
            controller = await self._find()
            if controller is None:
                return None
            answer: dict[str, Any] = await asyncio.wait_for(
                controller.exchange.remote(report, self._batching),
                timeout=self._config.lease_s / 2,
            )
        except RayTaskError as error:
            self._complaints.log(REFUSED, error.cause or error)
        except Exception as error:  # gone, slow, or the cluster's store is unavailable
            logger.debug("No answer from the batch controller: %r", error)
            self._controller = None
        else:
            self._complaints.over()
            self._answered_s = asyncio.get_running_loop().time()
            if answer.get("role") != self.role:
                self.role = answer.get("role")
                logger.info("Replica %s changes to role %s.", self._replica_id, self.role)
            return answer
        return None

    async def _find(self) -> Any:
        """The controller's handle; None during the search."""
        if self._controller is None:
            # Finding a name blocks while the cluster's store is unavailable. One thread waits for
            # it, and syncs with the engine go on.
            if self._finding is None:
                self._finding = asyncio.create_task(asyncio.to_thread(get_controller))
            done, _ = await asyncio.wait({self._finding}, timeout=SEARCH_S)
            if not done:
                return None
            finding, self._finding = self._finding, None
            self._controller = finding.result()
        return self._controller

    def _note(self, report: EngineReport, now_s: float) -> None:
        before: Mode = self._report.mode if self._report else "leased"
        if report.mode != before:
            self._say(report.mode)
        if report.sla_out_of_reach != (self._report is not None and self._report.sla_out_of_reach):
            self._say_reach(out=report.sla_out_of_reach)
        applied = self._report.enforced if self._report else self._config.enforce
        if report.enforced != applied:
            self._say_switched(on=report.enforced)
        roles = report.role, self._report and self._report.role
        self._report, self._reported_s = report, now_s
        gaps = Gaps(report.itl.n, report.late_itl), self._leaving.gaps
        if not report.enforced or self._leaving.limit_s is None:  # no step depends on it
            self._clock = ClientFeedback(self._config.sla.percentile)
        elif "prefill" in roles:  # without an ITL
            self._clock.pass_over(*gaps)
        else:
            self._clock.learn(*gaps)
        self._metrics.publish(report, self._config)
        self._on_report(report)

    def _say(self, mode: Mode) -> None:
        if mode == "leased":
            logger.info(
                "The batch controller answers again; replica %s applies its limits.",
                self._replica_id,
            )
        else:
            logger.warning(
                "No limits from the batch controller for %.1f s; replica %s uses its own loop.",
                self._config.lease_s,
                self._replica_id,
            )

    def _say_reach(self, *, out: bool) -> None:
        if out:
            logger.warning(
                "The SLA of %.1f ms between tokens is out of reach: one decode alone takes"
                " longer, or nearly. Replica %s serves with longer steps, and autoscaling"
                " ignores it.",
                self._config.sla.itl_ms,
                self._replica_id,
            )
        else:
            logger.info("The SLA is in reach again for replica %s.", self._replica_id)

    def _say_switched(self, *, on: bool) -> None:
        if on:
            logger.warning(
                "Control is switched on: replica %s applies its limits.", self._replica_id
            )
        else:
            logger.warning(
                "Control is switched off: replica %s runs at vLLM's own limits, and only reports"
                " what control would do.",
                self._replica_id,
            )

    def routing_stats(self) -> dict[str, Any]:
        """The headroom of this replica; empty without a report of this lease."""
        if (report := self.recent_report()) is None:
            return {}
        age_s = asyncio.get_running_loop().time() - self._reported_s
        config = as_prefill(self._config) if report.role == "prefill" else self._config
        stats = routing_stats(report, config, time.time() - age_s)
        return {KEY: stats | ({PREFILL: 1} if self.role == "prefill" else {})}

    def silent_s(self) -> float:
        """Seconds the engine has owed an answer; 0 before its first step, which may compile."""
        asked_s = self._asked_engine_s
        if asked_s is None or self._report is None or not self._report.busy_s:
            return 0.0
        return asyncio.get_running_loop().time() - asked_s

    async def tell(self, moves: dict[str, Any]) -> None:
        """Tell the controller the present outcomes of a dead engine's requests."""
        told = {"replica": self._replica_id, "group": self._group, **moves}
        try:
            if (controller := await self._find()) is not None:
                await asyncio.wait_for(controller.engine_died.remote(told), timeout=SEARCH_S)
        except Exception as error:  # gone or slow: no caller waits for it
            logger.debug("The batch controller could not be told: %r", error)

    def leave(self) -> None:
        """Mark the replica as being removed in all reports from now on."""
        self._leaves = True

    def holds_kv(self, since_s: float) -> bool:
        """Whether the engine holds KV, by a report that came after ``since_s``.

        Without a recent report no engine could read it.
        """
        report = self.recent_report()
        return report is not None and (self._reported_s <= since_s or report.kv_used_tokens > 0)

    def recent_report(self) -> EngineReport | None:
        """The last report; None before the first, or if it is older than a lease."""
        age_s = asyncio.get_running_loop().time() - self._reported_s
        return self._report if age_s <= self._config.lease_s else None
