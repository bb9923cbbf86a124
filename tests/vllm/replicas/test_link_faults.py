"""The link between engine and controller: whatever fails there, the replica serves on."""

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError, RayTaskError
from vllm.v1.engine.exceptions import EngineDeadError

from controller.config import parse_batching
from controller.errors import ReportError
from controller.models.client_clock import AIM, STEP, Gaps
from controller.records import to_wire
from replicas import control_link
from replicas.control_link import ControlLink
from replicas.leaving import LeavingTokens
from replicas.server import BrimfulServer
from tests.builders import limits, report
from tests.vllm.replicas.test_control_link import Published

GOOD = to_wire(report())
ANSWER = to_wire(limits())
Turn = dict[str, Any] | BaseException


def refused(cause: Exception) -> RayTaskError:
    return RayTaskError("exchange", "its traceback", cause)


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
        self.published = Published()
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(
            control_link, "logger", logging.getLogger(__name__)
        )  # Ray's do not propagate
        monkeypatch.setattr(control_link, "get_controller", lambda: self._actor)
        self._actor = SimpleNamespace(exchange=SimpleNamespace(remote=self._exchange))

    def made(self) -> ControlLink:
        client = SimpleNamespace(engine_core=SimpleNamespace(call_utility_async=self._call))
        self.link = ControlLink(
            client,
            parse_batching(self.block),
            replica_id="r",
            group="g",
            leaving=self.leaving,
            metrics=self.published,
        )
        return self.link

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

    async def _exchange(self, *_: Any) -> Any:
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
async def test_a_controller_that_cannot_be_found_is_looked_for_again(
    link: Link, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [fault, fault, link._actor]
    monkeypatch.setattr(control_link, "get_controller", lambda: _next(found))
    await link.run(5)
    assert link.applied == [None, None, None, ANSWER, ANSWER]


async def test_while_the_controller_is_looked_for_the_engine_is_still_asked(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_the_engines_death_alone_ends_the_exchange(link: Link) -> None:
    link.engine = [GOOD, EngineDeadError()]
    await link.run(10)
    assert link.ended
    assert len(link.applied) == 2


async def test_health_is_the_engines_alone() -> None:
    # A link that ended for whatever reason must not restart an engine that serves.
    assert BrimfulServer.check_health is BrimfulServer.__mro__[1].check_health


async def test_a_refusal_is_logged_when_it_changes(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
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
    "paced": {
        "policy": "adaptive",
        "sla": {"itl_ms": 50, "ttft_ms": 500, "delivery": "paced"},
        "lease_s": 2,
    },
}


@pytest.mark.parametrize(
    ("block", "enforced", "on", "learns"),
    [
        ("adaptive", True, True, True),
        ("adaptive", False, True, False),  # control is off
        ("adaptive", True, False, False),  # a chunk is no token
        ("static", True, True, False),
        ("paced", True, True, False),
    ],
)
async def test_what_is_late_on_its_way_out_changes_what_the_engine_is_held_to(
    link: Link, block: str, enforced: bool, on: bool, learns: bool
) -> None:
    counts = iter([Gaps(), Gaps(1000, 100)])
    last = Gaps(1000, 100)
    link.monkeypatch.setattr(LeavingTokens, "gaps", property(lambda _: next(counts, last)))
    link.block, link.leaving = BLOCKS[block], LeavingTokens(on=on)
    link.engine = [{**GOOD, "enforced": enforced}]
    await link.run(4)
    # Late where the engine counted no token: 9.15% too many, once.
    once = 1 - STEP * (0.1 - AIM * 0.01) if learns else 1.0
    assert link.held_to == pytest.approx([1.0, 1.0, once, once])


async def test_another_block_with_the_same_sla_leaves_what_was_learned(link: Link) -> None:
    link.block = BLOCKS["adaptive"]
    made = link.made()
    clock = made._clock
    await made.configure(parse_batching({**BLOCKS["adaptive"], "lease_s": 9}))
    assert made._clock is clock
    await made.configure(parse_batching({**BLOCKS["adaptive"], "sla": {"itl_ms": 60}}))
    assert made._clock is not clock
    assert made._leaving.limit_s == 0.06
