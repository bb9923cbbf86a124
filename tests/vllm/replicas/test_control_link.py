"""The link between engine and controller, with both of them here, when control is switched."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from ray.exceptions import GetTimeoutError, RayTaskError
from vllm.v1.engine.exceptions import EngineDeadError

from controller.config import BatchingConfig, parse_batching
from controller.errors import ConfigError, ReportError
from controller.law.client_feedback import STEP, Gaps
from controller.law.target import AIM
from controller.records import EngineReport, to_wire
from replicas.engine import channel
from replicas.server import control_link
from replicas.server.control_link import ControlLink
from replicas.server.egress import LeavingTokens
from replicas.server.pd_server import LOOK_S, PrefillServer, until_read
from serve_app.mixed_server import MixedServer
from tests.builders import limits, report
from tests.vllm.harness import Rig

BLOCK = {"policy": "static", "max_running": {"max": 5}}


def published(link: ControlLink) -> list[EngineReport]:
    """What went to Prometheus, report by report."""
    return [call.args[0] for call in link._metrics.publish.call_args_list]


def link_of(client: Any, config: BatchingConfig, **more: Any) -> ControlLink:
    made: dict[str, Any] = {"leaving": LeavingTokens(), "metrics": MagicMock(), **more}
    return ControlLink(client, config, replica_id="r1", group="g", **made)


async def test_a_new_block_is_for_engine_and_controller_or_for_none(tiny_llama) -> None:
    rig, old = Rig.led(tiny_llama, BLOCK), parse_batching(BLOCK)

    async def call_utility_async(method: str, *args: Any) -> Any:
        assert method == channel.CONFIGURE
        return rig.scheduler.configure(*args)

    core = SimpleNamespace(call_utility_async=call_utility_async)
    link = link_of(SimpleNamespace(engine_core=core), old)
    with pytest.raises(ConfigError, match="65 is above max_num_seqs=64"):
        await link.configure(parse_batching({"max_running": {"max": 65}}))
    assert rig.scheduler.governor.config == parse_batching(link._batching) == old
    new = parse_batching({"policy": "adaptive", "sla": {"itl_ms": 80}, "lease_s": 9})
    await link.configure(new)
    assert rig.scheduler.governor.config == parse_batching(link._batching) == new


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
    await waits
    link._reported_s = clock() - 60  # of an engine that is silent nobody reads
    assert not link.holds_kv(0.0)


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")  # what Python itself makes of it
@pytest.mark.parametrize("kind", [PrefillServer, MixedServer])
async def test_a_replica_that_is_stopped_while_it_starts_ends_its_engine(kind: Any) -> None:
    server = object.__new__(kind)
    server.engine = AsyncMock()
    await server.__del__()
    server.engine.shutdown.assert_awaited_once()


GOOD = to_wire(report())
ANSWER = to_wire(limits())
Turn = dict[str, Any] | BaseException


class Link:
    """A link whose engine and controller answer as they are told, the last answer for ever.

    Attributes:
        applied: what each exchange brought to the engine.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine: list[Turn] = [GOOD]
        self.controller: list[Turn] = [ANSWER]
        self.applied: list[Any] = []
        self.held_to: list[float] = []
        self.block: dict[str, Any] = {"policy": "static", "lease_s": 2}
        self.leaving = LeavingTokens()
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(control_link, "get_controller", lambda: self._actor)
        self._actor = SimpleNamespace(exchange=SimpleNamespace(remote=self._exchange))

    def made(self) -> ControlLink:
        client = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=self._call))
        return link_of(client, parse_batching(self.block), leaving=self.leaving)

    async def run(self, exchanges: int) -> None:
        """So many exchanges; returns early when the link ends by itself."""
        left = exchanges

        async def sleep(_: float) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise asyncio.CancelledError

        self.monkeypatch.setattr(control_link.asyncio, "sleep", sleep)
        self.link = self.made()
        task = asyncio.create_task(self.link.run())
        await asyncio.wait({task})
        self.ended = not task.cancelled()
        if self.ended:
            task.result()

    async def _call(self, _: str, limits_: Any, *rest: Any) -> Any:
        self.applied.append(limits_)
        self.held_to.append(rest[-1] if rest else 1.0)
        return _next(self.engine)

    async def _exchange(self, report: dict[str, Any], _: Any) -> Any:
        return _next(self.controller)


def _next(turns: list[Turn]) -> dict[str, Any]:
    turn = turns.pop(0) if len(turns) > 1 else turns[0]
    if isinstance(turn, BaseException):
        raise turn
    return turn


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
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
    assert len(published(link.link)) >= 3
    assert link.applied[-1] == ANSWER


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
async def test_an_engine_that_answers_anything_does_not_hang(link: Link, fault: Turn) -> None:
    link.engine = [GOOD, fault]
    await link.run(3)
    assert link.link.silent_s() == 0.0  # its first step may compile
    link.engine = [{**GOOD, "busy_s": 1.0}, fault]
    await link.run(3)
    assert (link.link.silent_s() > 0) is isinstance(fault, TimeoutError)


CONTROLLER_FAULTS = [
    {},
    {key: value for key, value in ANSWER.items() if key != "switches"},
    ConnectionError("the cluster's store is away"),
    RuntimeError("?"),
    KeyError("x"),
    GetTimeoutError(),
    RayTaskError("exchange", "its traceback", ReportError("report.seq: -1 is not allowed")),
]


@pytest.mark.parametrize("fault", CONTROLLER_FAULTS, ids=repr)
async def test_a_fault_of_the_controllers_side_is_one_lost_answer(link: Link, fault: Turn) -> None:
    link.controller = [fault, ANSWER]
    await link.run(4)
    assert not link.ended
    assert link.applied == [None, None, ANSWER, ANSWER]
    assert len(published(link.link)) == 4


async def test_while_the_controller_is_looked_for_the_engine_is_still_asked(link, monkeypatch):
    answers, searches = threading.Event(), []

    def search() -> Any:
        searches.append(1)
        answers.wait()
        return link._actor

    monkeypatch.setattr(control_link, "get_controller", search)
    monkeypatch.setattr(control_link, "SEARCH_S", 0.0)
    try:
        await link.run(3)
    finally:
        answers.set()
    assert len(published(link.link)) == 3
    assert len(searches) <= 1  # one thread waits, not one more for each exchange


async def test_the_engines_death_alone_ends_the_exchange(link: Link) -> None:
    link.engine = [GOOD, EngineDeadError()]
    await link.run(10)
    assert link.ended
    assert len(link.applied) == 2


async def test_a_report_older_than_a_lease_is_not_published_as_new(link: Link) -> None:
    made = link.made()
    assert made.recent_report() is None
    now_s = asyncio.get_running_loop().time()
    made._note(report(), now_s - 1.9)
    assert made.recent_report().running == 10
    made._note(report(), now_s - 2.1)
    assert made.recent_report() is None


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
