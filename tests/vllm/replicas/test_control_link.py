"""The link between engine and controller, with both of them here, when control is switched."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from controller import metrics
from controller.config import BatchingConfig, parse_batching
from controller.fleet.actor import BatchController
from controller.records import ReplicaReport, Role
from replicas import control_link
from replicas.control_link import ControlLink
from replicas.leaving import LeavingTokens
from replicas.metric_values import gauges
from replicas.pd_server import LOOK_S, until_read
from replicas.server import BrimfulServer
from tests.builders import report, sample, stats_of
from tests.vllm.harness import Rig, batching, engine_config

BLOCK = {"policy": "static", "max_running": {"max": 5}}


class Published:
    """What goes to Prometheus, report by report."""

    def __init__(self) -> None:
        self.reports: list[ReplicaReport] = []
        self.ages_s: list[float] = []
        self.controller_ages_s: list[float] = []

    def publish(self, report: ReplicaReport, config: BatchingConfig) -> None:
        self.reports.append(report)

    def publish_age(self, age_s: float) -> None:
        self.ages_s.append(age_s)

    def publish_controller_age(self, age_s: float) -> None:
        self.controller_ages_s.append(age_s)


def over_the_wire(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


@pytest.fixture
def linked(tiny_llama, monkeypatch):
    """Runs a link for some exchanges; before each, ``acts`` may do something with the controller.

    Returns what it published, and how long it slept between the exchanges.
    """
    block = batching(**BLOCK)
    block["brimful"]["group"] = "g"
    rig = Rig(engine_config(tiny_llama, additional_config=block))
    controller = BatchController()

    async def call_utility_async(_: str, limits: Any, *rest: Any) -> Any:
        return over_the_wire(rig.scheduler.exchange(over_the_wire(limits), *rest))

    async def remote(report: Any, config: Any) -> Any:
        return controller.exchange(report, config)

    async def run(
        acts: dict[int, Any], exchanges: int, refused: str | None = None, leaves: bool = False
    ) -> tuple[list[ReplicaReport], list[float]]:
        published, slept = Published(), []
        link = ControlLink(
            SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=call_utility_async)),
            parse_batching(BLOCK),
            replica_id="r1",
            group="g",
            leaving=LeavingTokens(),
            metrics=published,
        )
        link.config_refused = refused
        if leaves:
            link.leave()
        link._controller = SimpleNamespace(exchange=SimpleNamespace(remote=remote))

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == exchanges:
                raise asyncio.CancelledError
            acts.get(len(slept), lambda _: None)(controller)

        monkeypatch.setattr(control_link.asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await link.run()
        assert link.autoscaling_stats()["max_running"] == (
            5.0 if published.reports[-1].enforced else 64.0
        )
        return published.reports, slept

    return run


async def test_a_switch_is_applied_at_once_and_logged_once(linked, monkeypatch, caplog) -> None:
    monkeypatch.setattr(
        control_link, "logger", logging.getLogger(__name__)
    )  # Ray's own does not propagate
    caplog.set_level(logging.INFO)
    off, on = (lambda c: c.switch(False, "g")), (lambda c: c.switch(True, None))
    reports, slept = await linked({2: off, 5: on}, 9)

    # The report that meets the switch, and the one right after it that says it is applied.
    assert [r.enforced for r in reports] == [True] * 3 + [False] * 3 + [True] * 3
    assert max(slept) <= 0.5  # two a second
    assert [s > 0 for s in slept] == [True, True, False, True, True, False, True, True, True]
    said = [m for m in caplog.messages if "replica r1" in m]
    assert [m.split(":")[0] for m in said] == ["Control is switched off", "Control is switched on"]


async def test_a_refused_live_configuration_is_in_every_report_that_the_controller_gets(
    linked,
) -> None:
    known: list[Any] = []

    def look(controller: BatchController) -> None:
        replica = controller.snapshot()["groups"]["g"]["replicas"]["r1"]
        known.append(replica["report"].config_refused)

    reports, _ = await linked({2: look}, 3, refused="user_config.batching: no")
    assert [report.config_refused for report in reports] == ["user_config.batching: no"] * 3
    assert known == ["user_config.batching: no"]
    assert (metrics.CONFIG_REFUSED, (), True) in gauges(reports[0], parse_batching(BLOCK))


async def test_a_replica_that_refuses_its_live_configuration_says_so_until_it_takes_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = SimpleNamespace(num_replicas=1, autoscaling_config=None)
    context = SimpleNamespace(_deployment_config=options)
    monkeypatch.setattr("ray.serve.get_replica_context", lambda: context)

    async def configure(_: BatchingConfig) -> None:
        return

    brimful = {"batching": {}, "emulate": None}
    policy = SimpleNamespace(policy="fcfs")
    client = SimpleNamespace(vllm_config=SimpleNamespace(scheduler_config=policy))
    server: Any = SimpleNamespace(
        _llm_config=SimpleNamespace(
            engine_kwargs={"additional_config": {"brimful": brimful}},
        ),
        engine=SimpleNamespace(_engine_client=client),
        _link=SimpleNamespace(configure=configure, config_refused=None),
        _door=SimpleNamespace(rules=None),
        _gate=None,
        _live_problems=lambda asked: [],
    )
    await BrimfulServer.reconfigure(server, {"batching": {"sla": {"itl_ms": 0}}})
    assert server._link.config_refused.startswith("user_config.batching.sla.itl_ms: 0 is not")
    await BrimfulServer.reconfigure(server, {"batching": {"sla": {"itl_ms": 9}}})
    assert server._link.config_refused is None
    assert server._sla.itl_ms == 9


def link_of(block: dict[str, Any]) -> ControlLink:
    return ControlLink(
        None,
        parse_batching(block),
        replica_id="r1",
        group="g",
        leaving=LeavingTokens(),
        metrics=Published(),
    )


async def test_one_that_leaves_says_so_in_every_report(linked) -> None:
    known: list[bool] = []

    def look(controller: BatchController) -> None:
        known.append(controller.snapshot()["groups"]["g"]["replicas"]["r1"]["report"].leaving)

    reports, _ = await linked({1: look, 2: look}, 3, leaves=True)
    assert [report.leaving for report in reports] == [True] * 3
    assert known == [True] * 2


async def test_a_replica_ends_once_its_kv_is_read_and_not_by_a_report_of_before() -> None:
    link, clock = link_of(BLOCK), asyncio.get_running_loop().time
    waits = asyncio.create_task(until_read(link))
    link._report = report(kv_used_tokens=0)
    await asyncio.sleep(0.01)
    assert link.holds_kv(clock()) and not waits.done()
    for tokens in (500, 0):
        assert not waits.done()
        link._report, link._reported_s = report(kv_used_tokens=tokens), clock()
        await asyncio.sleep(2 * LOOK_S)
    assert waits.done()
    link._reported_s = clock() - 60  # of an engine that is silent nobody reads
    assert not link.holds_kv(0.0)


@pytest.mark.parametrize("held", ["mixed", "prefill"])
async def test_no_client_is_sent_to_a_replica_from_when_it_is_told_to_compute_prompts(
    held: Role,
) -> None:
    block = {"policy": "adaptive", "sla": {"itl_ms": 50}, "roles": 1}
    link = link_of(block)
    steps = [sample(decodes=d, prefill_tokens=64, duration_s=0.02) for d in range(1, 60)]
    link._report = report(role=held, steps=stats_of(steps))
    room = link.routing_stats()["brimful"]
    assert "prefill" not in room
    link.role = "prefill"
    room = link.routing_stats()["brimful"]
    assert room["prefill"] == 1
    # Its prompts are as fast as without a time between tokens only once its decodes have ended.
    assert ("most_prefill_tokens_per_s" in room) == (held == "mixed")
