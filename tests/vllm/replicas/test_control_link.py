"""The link between engine and controller, with both of them here, when control is switched."""

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from ray.exceptions import GetTimeoutError, RayTaskError
from vllm.v1.engine.exceptions import EngineDeadError

from controller import metrics
from controller.config import BatchingConfig, parse_batching
from controller.errors import ConfigError, ReportError
from controller.fleet import loop
from controller.fleet.actor import BatchController
from controller.law.client_feedback import STEP, Gaps
from controller.law.target import AIM
from controller.models.step_time import StepModel
from controller.records import EngineReport, to_wire
from replicas.engine import channel
from replicas.server import control_link
from replicas.server.control_link import ControlLink
from replicas.server.egress import LeavingTokens
from replicas.server.metric_values import gauges
from replicas.server.pd_server import LOOK_S, PrefillServer, until_read
from replicas.server.server import BrimfulServer
from serve_app.mixed_server import MixedServer
from tests.builders import limits, report
from tests.vllm.harness import Rig, batching, engine_config

BLOCK = {"policy": "static", "max_running": {"max": 5}}


class Published:
    """What goes to Prometheus, report by report."""

    def __init__(self) -> None:
        self.reports: list[EngineReport] = []
        self.ages_s: list[float] = []
        self.controller_ages_s: list[float] = []

    def publish(self, report: EngineReport, config: BatchingConfig) -> None:
        self.reports.append(report)

    def publish_age(self, age_s: float) -> None:
        self.ages_s.append(age_s)

    def publish_controller_age(self, age_s: float) -> None:
        self.controller_ages_s.append(age_s)


def link_of(client: Any, config: BatchingConfig, **more: Any) -> ControlLink:
    made: dict[str, Any] = {"leaving": LeavingTokens(), "metrics": Published(), **more}
    return ControlLink(client, config, replica_id="r1", group="g", **made)


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
    ) -> tuple[list[EngineReport], list[float]]:
        published, slept = Published(), []
        client = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=call_utility_async))
        link = link_of(client, parse_batching(BLOCK), metrics=published)
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


async def test_a_controller_of_many_replicas_is_asked_less_often_than_the_engine(
    linked, monkeypatch
) -> None:
    monkeypatch.setattr(loop, "MOST_PER_S", 0.5)  # one replica reports twice a second
    exchanges: list[int] = []
    reports, slept = await linked({8: lambda c: exchanges.append(c.snapshot()["exchanges"])}, 9)
    assert (exchanges, len(reports), max(slept) <= 0.5) == ([1], 9, True)


async def test_a_refused_configuration_and_a_removal_are_in_every_report_to_the_controller(linked):
    known: list[Any] = []

    def look(controller: BatchController) -> None:
        known.append(controller.snapshot()["groups"]["g"]["replicas"]["r1"]["report"])

    refused = "user_config.batching: no"
    reports, _ = await linked({1: look, 2: look}, 3, refused=refused, leaves=True)
    assert [(r.config_refused, r.leaving) for r in reports] == [(refused, True)] * 3
    assert [(r.config_refused, r.leaving) for r in known] == [(refused, True)] * 2
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
        _llm_config=SimpleNamespace(engine_kwargs={"additional_config": {"brimful": brimful}}),
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


async def test_a_replica_ends_once_its_kv_is_read_and_not_by_a_report_of_before() -> None:
    link, clock = link_of(None, parse_batching(BLOCK)), asyncio.get_running_loop().time
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


class Engine:
    """What of an engine a replica ends."""

    ended = False

    async def shutdown(self) -> None:
        self.ended = True


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # what Python itself makes of it
@pytest.mark.parametrize("kind", [PrefillServer, MixedServer])
async def test_a_replica_that_is_stopped_while_it_starts_ends_its_engine(kind: Any) -> None:
    server = object.__new__(kind)
    server.engine = engine = Engine()
    await server.__del__()
    assert engine.ended


@pytest.mark.parametrize("held", ["mixed", "prefill"])
async def test_no_client_is_sent_to_a_replica_from_when_it_is_told_to_compute_prompts(
    held,
) -> None:
    block = {"policy": "adaptive", "sla": {"itl_ms": 50}, "roles": 1}
    link = link_of(None, parse_batching(block))
    link._report = report(role=held, model=StepModel(0.02, 0, 0, 1e-4, 0, 0))
    room = link.routing_stats()["brimful"]
    assert "prefill" not in room
    link.role = "prefill"
    room = link.routing_stats()["brimful"]
    assert room["prefill"] == 1
    # Its prompts are as fast as without a time between tokens only once its decodes have ended.
    assert ("most_prefill_tokens_per_s" in room) == (held == "mixed")


OLD = parse_batching({"policy": "static", "max_running": {"max": 5}})


@pytest.fixture
async def with_engine(tiny_llama) -> ControlLink:
    block = {"policy": "static", "max_running": {"max": 5}}
    rig = Rig.led(tiny_llama, block)

    async def call_utility_async(method: str, *args: Any) -> Any:
        assert method == channel.CONFIGURE
        return rig.scheduler.configure(*args)

    core = SimpleNamespace(call_utility_async=call_utility_async, rig=rig)
    return link_of(SimpleNamespace(engine_core=core), OLD)


def in_engine(link: ControlLink) -> Any:
    return link._client.engine_core.rig.scheduler.governor.config


async def test_a_new_block_is_for_engine_and_controller_or_for_none(with_engine) -> None:
    before = in_engine(with_engine)
    await with_engine.configure(OLD)  # the same again changes nothing
    assert in_engine(with_engine) is before
    with pytest.raises(ConfigError, match="65 is above max_num_seqs=64"):
        await with_engine.configure(parse_batching({"max_running": {"max": 65}}))
    assert in_engine(with_engine) == parse_batching(with_engine._batching) == OLD
    new = parse_batching({"policy": "adaptive", "sla": {"itl_ms": 80}, "lease_s": 9})
    await with_engine.configure(new)
    assert in_engine(with_engine) == parse_batching(with_engine._batching) == new
    assert with_engine._config.lease_s == 9


GOOD = to_wire(report())
ANSWER = to_wire(limits())
Turn = dict[str, Any] | BaseException


def refused(cause: Exception) -> RayTaskError:
    return RayTaskError("exchange", "its traceback", cause)


class Link:
    """A link whose engine and controller answer as they are told, the last answer for ever.

    Attributes:
        applied: what each exchange brought to the engine.
        sent: the reports that the controller got.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine: list[Turn] = [GOOD]
        self.controller: list[Turn] = [ANSWER]
        self.applied: list[Any] = []
        self.sent: list[dict[str, Any]] = []
        self.held_to: list[float] = []
        self.block: dict[str, Any] = {"policy": "static", "lease_s": 2}
        self.leaving = LeavingTokens()
        self.published = Published()
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(
            control_link, "logger", logging.getLogger(__name__)
        )  # Ray's do not propagate
        monkeypatch.setattr(control_link, "get_controller", lambda: self._actor)
        self._actor = SimpleNamespace(exchange=SimpleNamespace(remote=self._exchange))

    def made(self) -> ControlLink:
        client = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=self._call))
        more = {"leaving": self.leaving, "metrics": self.published}
        return link_of(client, parse_batching(self.block), **more)

    async def run(self, exchanges: int) -> None:
        """So many exchanges; returns early when the link ends by itself."""
        left = exchanges

        async def sleep(_: float) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise asyncio.CancelledError

        self.monkeypatch.setattr(control_link.asyncio, "sleep", sleep)
        task = asyncio.create_task(self.made().run())
        await asyncio.wait({task})
        self.ended = not task.cancelled()
        if self.ended:
            task.result()

    async def _call(self, _: str, limits_: Any, *rest: Any) -> Any:
        self.applied.append(limits_)
        self.held_to.append(rest[-1] if rest else 1.0)
        return _next(self.engine)

    async def _exchange(self, report: dict[str, Any], _: Any) -> Any:
        self.sent.append(report)
        return _next(self.controller)


def _next(turns: list[Turn]) -> dict[str, Any]:
    turn = turns.pop(0) if len(turns) > 1 else turns[0]
    if isinstance(turn, BaseException):
        raise turn
    return turn


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Link:
    caplog.set_level(logging.WARNING)
    return Link(monkeypatch)


FAULTS = [
    Exception("Call to brimful_exchange method failed: ..."),
    {},
    {key: value for key, value in GOOD.items() if key != "switches"},
    ConnectionError("the socket is gone"),
    RuntimeError("?"),
    TimeoutError(),
]


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
async def test_a_fault_of_the_engines_side_is_one_lost_report(link: Link, fault: Turn) -> None:
    link.engine = [fault, GOOD]
    await link.run(4)
    assert not link.ended
    assert len(link.published.reports) >= 3
    assert link.applied[-1] == ANSWER


CONTROLLER_FAULTS = [
    {},
    {key: value for key, value in ANSWER.items() if key != "switches"},
    ConnectionError("the cluster's store is away"),
    RuntimeError("?"),
    KeyError("x"),
    GetTimeoutError(),
    refused(ReportError("report.seq: -1 is not allowed")),
]


@pytest.mark.parametrize("fault", CONTROLLER_FAULTS, ids=repr)
async def test_a_fault_of_the_controllers_side_is_one_lost_answer(link: Link, fault: Turn) -> None:
    link.controller = [fault, ANSWER]
    await link.run(4)
    assert not link.ended
    assert link.applied == [None, None, ANSWER, ANSWER]
    assert len(link.published.reports) == 4


@pytest.mark.parametrize("fault", [ConnectionError("no store"), RuntimeError("?"), OSError(5)])
async def test_a_controller_that_cannot_be_found_is_looked_for_again(link, fault, monkeypatch):
    found = [fault, fault, link._actor]
    monkeypatch.setattr(control_link, "get_controller", lambda: _next(found))
    await link.run(5)
    assert link.applied == [None, None, None, ANSWER, ANSWER]


async def test_while_the_controller_is_looked_for_the_engine_is_still_asked(link, monkeypatch):
    answers, searches = threading.Event(), []

    def search() -> Any:
        searches.append(1)
        answers.wait(60)
        return link._actor

    monkeypatch.setattr(control_link, "get_controller", search)
    monkeypatch.setattr(control_link, "SEARCH_S", 0.0)
    try:
        await link.run(3)
    finally:
        answers.set()
    assert len(link.published.reports) == 3
    assert len(searches) <= 1  # one thread waits, not one more for each exchange


async def test_limits_that_the_engine_cannot_apply_are_not_sent_again(link: Link) -> None:
    link.engine = [GOOD, Exception("KeyError: 'lease_s'"), GOOD]
    await link.run(4)
    assert link.applied == [None, ANSWER, None, ANSWER]


async def test_the_controller_is_not_sent_the_limits_that_it_gave(link: Link) -> None:
    await link.run(2)
    for said in link.sent:
        assert not said.keys() & {"max_running", "reason", "capacity_per_s", "sla_out_of_reach"}
        assert said.items() >= {"running": 10, "enforced": True, "leaving": False}.items()
    assert link.published.reports[0].max_running == GOOD["max_running"]


async def test_the_engines_death_alone_ends_the_exchange(link: Link) -> None:
    link.engine = [GOOD, EngineDeadError()]
    await link.run(10)
    assert link.ended
    assert len(link.applied) == 2


async def test_health_is_the_engines_alone() -> None:
    # A link that ended for whatever reason must not restart an engine that serves.
    assert BrimfulServer.check_health is BrimfulServer.__mro__[1].check_health


async def test_a_refusal_is_logged_when_it_changes(link, caplog):
    same = [refused(ReportError(f"report.seq: -{n} is not allowed")) for n in range(1, 6)]
    link.controller = [*same, refused(ReportError("report.itl: NaN")), ANSWER, same[0], ANSWER]
    await link.run(12)
    assert [m for m in caplog.messages if "refused" in m] == [
        "The batch controller refused the report: ReportError: report.seq: -1 is not allowed",
        "The batch controller refused the report: ReportError: report.itl: NaN",
        "The batch controller refused the report: ReportError: report.seq: -1 is not allowed",
    ]


async def test_a_report_older_than_a_lease_is_not_published_as_new(link: Link) -> None:
    made = link.made()
    assert made.autoscaling_stats() == {}
    now_s = asyncio.get_running_loop().time()
    made._note(report(), now_s - 1.9)
    assert made.autoscaling_stats()["running"] == 10.0
    made._note(report(), now_s - 2.1)
    assert made.autoscaling_stats() == {}


async def test_how_old_the_published_numbers_are_is_published(link: Link) -> None:
    link.engine = [GOOD, RuntimeError("?"), GOOD]
    await link.run(4)
    assert len(link.published.ages_s) == 1
    assert link.published.ages_s[0] >= 0


BLOCKS = {
    "adaptive": {"policy": "adaptive", "sla": {"itl_ms": 50}, "lease_s": 2},
    "static": {"policy": "static", "sla": {"itl_ms": 50}, "lease_s": 2},
}


@pytest.mark.parametrize(
    ("block", "enforced", "on", "learns"),
    [
        ("adaptive", True, True, True),
        ("adaptive", False, True, False),  # control is off
        ("adaptive", True, False, False),  # a chunk is no token
        ("static", True, True, False),
    ],
)
async def test_what_is_late_on_its_way_out_changes_what_the_engine_is_held_to(
    link: Link, block: str, enforced: bool, on: bool, learns: bool
) -> None:
    last = Gaps(2000, 1100)
    counts = iter([Gaps(), Gaps(1000, 1000), last])
    link.monkeypatch.setattr(LeavingTokens, "gaps", property(lambda _: next(counts, last)))
    link.block, link.leaving = BLOCKS[block], LeavingTokens(on=on)
    link.engine = [{**GOOD, "enforced": enforced}]
    await link.run(5)
    # Late where the engine counted no token: at once all, as in a pause, and then 9.15% too many.
    once = 1 - STEP * (0.1 - AIM * 0.01) if learns else 1.0
    assert link.held_to == pytest.approx([1.0, 1.0, 1.0, once, once])


async def test_gaps_of_an_engine_that_gave_its_itl_up_shorten_no_step_after(link: Link) -> None:
    counts = [Gaps(), Gaps(1000, 10), Gaps(2000, 900), Gaps(3000, 1500), Gaps(4000, 1510)]
    calls = iter(counts)
    link.monkeypatch.setattr(LeavingTokens, "gaps", property(lambda _: next(calls, counts[-1])))
    link.block, link.leaving = BLOCKS["adaptive"], LeavingTokens(on=True)
    roles = ("mixed", "prefill", "prefill", "mixed", "mixed")
    link.engine = [{**GOOD, "role": role} for role in roles]
    await link.run(6)
    assert min(link.held_to) == pytest.approx(1.0, abs=0.001)


async def test_another_block_with_the_same_sla_leaves_what_was_learned(link: Link) -> None:
    link.block = BLOCKS["adaptive"]
    made = link.made()
    clock = made._clock
    await made.configure(parse_batching({**BLOCKS["adaptive"], "lease_s": 9}))
    assert made._clock is clock
    await made.configure(parse_batching({**BLOCKS["adaptive"], "sla": {"itl_ms": 60}}))
    assert made._clock is not clock
    assert made._leaving.limit_s == 0.06
