"""The Ray Serve LLM server class: one vLLM engine, linked to the batch controller."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator
from typing import Any

from opentelemetry import trace
from ray import serve
from ray._common.usage.usage_lib import TagKey, record_extra_usage_tag, usage_stats_enabled

from controller.errors import ConfigError
from controller.fleet.refusals import LONGEST
from controller.records import EngineReport
from controller.request_slo import differ
from replicas.door.auth import Door, Rules
from replicas.engine import channel
from replicas.engine.settings import EngineSettings, parse_live, parse_settings
from replicas.server.autoscaling_stats import autoscaling_stats, scaled_by_another
from replicas.server.engine_facts import engine_facts
from replicas.server.metrics import DoorMetrics, ReplicaMetrics
from replicas.server.proxies import go_past
from replicas.server.routing_stats import DEAD, KEY
from replicas.server.startup import REPLICA, gc_paused
from replicas.workarounds.vllm_versions import installed_doubt

with gc_paused():  # these import vLLM
    from ray.llm._internal.serve.constants import RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING
    from ray.llm._internal.serve.core.server.llm_server import LLMServer
    from ray.llm._internal.serve.observability.usage_telemetry.usage import (
        push_telemetry_report_for_all_models,
    )
    from vllm.utils.gc_utils import freeze_gc_heap

    from replicas.admission.gate import Gate
    from replicas.server.app import guard_app
    from replicas.server.carried import Carried, Moved
    from replicas.server.control_link import ControlLink
    from replicas.server.egress import LeavingTokens
    from replicas.server.engine_gate import gate_for
    from replicas.server.failover import Failover
    from replicas.server.minute import Minute, class_names
    from replicas.server.peers import Peers, answer_unhealthy
    from replicas.server.stream_ends import OpenAnswers, before_shutdown
    from replicas.server.tracing import Tracing
    from replicas.server.vllm_engine import BrimfulEngine
    from replicas.workarounds.grammar_answers import answer_for_grammars

logger = logging.getLogger("ray.serve")
LAST_WORDS_S = 0.5  # for the error frames of streams, once the engine is dead


class BrimfulServer(LLMServer):
    """Ray Serve LLM's server with a background task that syncs with engine and controller.

    Its settings are in ``engine_kwargs.additional_config.brimful``; the app builder writes them,
    and the scheduler reads them, too.
    """

    _default_engine_cls = BrimfulEngine

    async def start(self) -> None:
        REPLICA.ends("imports")
        go_past(str(self._llm_config.engine_kwargs.get("otlp_traces_endpoint") or ""))
        await super().start()
        REPLICA.ends("engine")
        freeze_gc_heap()  # as in vLLM's own server
        logger.info("%s", REPLICA)
        settings = parse_settings(self._llm_config.engine_kwargs["additional_config"])
        assert settings.group is not None  # set by the app builder
        self._sla = settings.batching.sla
        self._metrics = ReplicaMetrics()
        answer_for_grammars(self.engine._engine_client)
        self._tracing = self._trace()  # before admission: refusals do not reach it
        self._gate = self._admit(settings)
        self._door = Door(Rules(settings.security), DoorMetrics().count)
        scheduling = self.engine._engine_client.vllm_config.scheduler_config
        one_sla = not differ(settings.live.classes)
        self._leaving = LeavingTokens(on=one_sla and scheduling.stream_interval == 1)
        self.engine.leaving = self._leaving
        self._link = ControlLink(
            self.engine._engine_client,
            settings.batching,
            replica_id=serve.get_replica_context().replica_id.unique_id,
            group=settings.group,
            metrics=self._metrics,
            leaving=self._leaving,
            on_report=self._reported,
        )
        self._minute = Minute()
        self._failover, self._carried = self._move(settings)
        options = serve.get_replica_context()._deployment_config
        if complaint := scaled_by_another(options.autoscaling_config):
            logger.warning("%s", complaint)
        self._link_task = asyncio.create_task(self._until_the_engine_dies())

    async def _until_the_engine_dies(self) -> None:
        """Sync with the batch controller; end with the engine.

        First other replicas must have taken over its answers (``replicas.server.failover``). Ray
        Serve checks a replica's health every 10 s and believes the third answer. Until then a
        replica without an engine would look empty, and get requests that others could serve.
        """
        await self._link.run()
        logger.error("The engine is dead: this replica ends, and Ray Serve starts another.")
        answer_unhealthy()
        if self._failover is not None and await self._failover.told():
            await self._link.tell(self._failover.so_far())
            await self._failover.relayed()
            await self._link.tell(self._failover.so_far())
        await asyncio.sleep(LAST_WORDS_S)
        logging.shutdown()
        os._exit(1)

    def _move(self, settings: EngineSettings) -> tuple[Failover | None, Carried | None]:
        """The failover of a dead engine's requests; None: there is none."""
        doubt = installed_doubt()
        lacking = doubt is not None and doubt.lacking  # ``Bystander`` knows of no moved requests
        if not settings.failover.relay_s or settings.role == "prefill" or lacking:
            return None, None
        client, context = self.engine._engine_client, serve.get_replica_context()
        own, peers = context.replica_id.unique_id, Peers(context)
        failover = Failover(client, settings.failover, own, peers.carry_on, peers.count)
        carried = Carried(client, own, getattr(self.engine._oai_models, "lora_requests", {}))
        watch = failover.watch(self._link.silent_s, carried.count)
        self._watch_task = asyncio.create_task(watch)
        return failover, carried

    async def carry_on(self, moved: Moved) -> AsyncGenerator[Any, None]:
        """``Carried.carry_on``, for other replicas of this deployment, not for clients."""
        assert self._carried is not None  # all replicas have one configuration
        async with contextlib.aclosing(self._carried.carry_on(moved)) as items:
            async for item in items:
                yield item

    async def _start_engine(self) -> None:
        """Like Ray Serve LLM's, but without waiting for telemetry.

        Its actor takes seconds and 250 MB, even if nothing may be sent.
        """
        await self.engine.start()
        if usage_stats_enabled():
            self._telemetry = asyncio.create_task(asyncio.to_thread(self._report_usage))

    def _report_usage(self) -> None:
        push_telemetry_report_for_all_models(all_models=[self._llm_config])
        if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
            record_extra_usage_tag(TagKey.LLM_SERVE_DIRECT_STREAMING_ENABLED, "1")

    async def reconfigure(self, user_config: Any, rank: Any = None) -> None:
        """Apply the blocks of the deployment's ``user_config``; the engine serves on.

        Ray Serve calls it at the start, for a changed ``user_config`` and, as it takes a rank, for
        a removed one. On an error it would restart the engine, so problems of a block are logged
        and reported, and all previous blocks stay.
        """
        settings = self._llm_config.engine_kwargs["additional_config"]
        time_scale = (settings["brimful"]["emulate"] or {}).get("time_scale", 1.0)
        ordered = self.engine._engine_client.vllm_config.scheduler_config.policy == "priority"
        try:
            if found := self._live_problems(user_config):
                raise ConfigError(found)
            entry_blocks = parse_settings(settings).live
            options = vars(serve.get_replica_context()._deployment_config)
            live = parse_live(
                user_config, entry_blocks, time_scale, ordered=ordered, deployment=options
            )
            rules = Rules(live.security)
            await self._link.configure(live.batching)
        except ConfigError as error:
            logger.error("The user_config is refused; the one before stays in force: %s", error)
            self._link.config_refused = " ".join(str(error).split())[:LONGEST]
            return
        self._link.config_refused = None
        self._sla = live.batching.sla
        self._door.rules = rules
        if self._gate is not None:
            self._gate.configure(*live.let_in_by(), named_classes=live.classes is not None)

    def _live_problems(self, user_config: Any) -> list[str]:
        """Problems of a ``user_config`` with this server's role; none here."""
        return []

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Numbers for ``serve_app.autoscaling``, read by Ray Serve from each replica."""
        options = serve.get_replica_context()._deployment_config
        if (report := self._link.recent_report()) is None:
            return {}
        return autoscaling_stats(
            report,
            most_ongoing=options.max_ongoing_requests,
            refused_per_s=0.0 if self._gate is None else self._gate.refused_per_s(),
            counts_late=self._sla.ttft_ms is not None,
        )

    async def __serve_build_asgi_app__(self) -> Any:
        app = await super().__serve_build_asgi_app__()
        answers = OpenAnswers()
        before_shutdown(answers.drain)
        await answers.clocks.replace_rays()
        client = self.engine._engine_client
        before = self._door, answers, self._leaving
        guard_app(app, client, *before, gate=self._gate, tracing=self._tracing)
        return app

    def _trace(self) -> Tracing | None:
        """Spans in addition to vLLM's; None if vLLM makes none."""
        client = self.engine._engine_client
        if client.observability_config.otlp_traces_endpoint is None:
            return None
        replica_id = serve.get_replica_context().replica_id.unique_id
        tracer = trace.get_tracer("brimful")
        tracing = Tracing(tracer, replica_id, lambda: self._link.recent_report())
        tracing.watch(client)
        self.engine.tracing = tracing
        return tracing

    def _admit(self, settings: EngineSettings) -> Gate | None:
        """The gate that every request passes from now on; None if no request is refused."""
        gate = self.engine.gate = gate_for(self.engine._engine_client, settings.live)
        return gate

    def _reported(self, report: EngineReport) -> None:
        if self._gate is not None:
            self._gate.learn(report, self._sla)
            self._metrics.publish_admission(self._gate.admission)

    async def timeline(self) -> dict[str, Any]:
        """Which request held which slot of the batch in the last minute, for the console.

        The engine records from the first call until there was none for ``channel.UNDRAINED_S``.
        """
        drained = await channel.record(self.engine._engine_client, channel.TIMELINE, on=True)
        assert drained is not None  # this replica is the only owner
        if drained["fresh"]:
            self._minute = Minute()
        classes = None if self._gate is None else self._gate.admission.classes
        return self._minute.take(drained, class_names(classes))

    async def steps(self, owner: str, on: bool) -> dict[str, Any] | None:
        """Steps since the owner's last call, recorded while ``on``: for `brimful record`."""
        return await channel.record(self.engine._engine_client, channel.STEPS, owner, on=on)

    async def requests(self, owner: str, on: bool) -> dict[str, Any] | None:
        """Requests that ended since the owner's last call, recorded likewise: `brimful capture`."""
        client = self.engine._engine_client
        drained = await channel.record(client, channel.REQUESTS, owner, on=on)
        classes = None if self._gate is None else self._gate.admission.classes
        if drained is not None and classes is not None:
            names = class_names(classes)
            for one in drained["requests"]:
                one["service"] = names(one["priority"])
        return drained

    async def facts(self) -> dict[str, Any]:
        """Machine, model and versions of the recorded steps."""
        vllm_config = self.engine._engine_client.vllm_config
        return engine_facts(vllm_config, self._llm_config.model_id)

    async def record_routing_stats(self) -> dict[str, Any]:
        """Numbers for ``serve_app.routing``, in addition to Ray Serve LLM's own."""
        if self.engine._engine_client.errored:
            return {KEY: {DEAD: 1}}
        return {**await super().record_routing_stats(), **self._link.routing_stats()}
