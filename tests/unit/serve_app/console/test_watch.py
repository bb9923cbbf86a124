"""How often the fleet is looked at, and what stands when nobody answers."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from controller.errors import BrimfulError
from serve_app.console.deployments import Deployment
from serve_app.console.watch import OPEN_FOR_S, PERIOD_S, UNSEEN_PERIOD_S, Watch
from tests.unit.serve_app.snapshots import fleet, snapshot_of


class Cluster:
    """Answers with a fleet, or not at all; counts how often it was asked."""

    def __init__(self) -> None:
        self.looks, self.error = 0, None

    async def read(self) -> tuple[dict[str, Any], Sequence[Deployment]]:
        self.looks += 1
        if self.error:
            raise BrimfulError(self.error)
        return fleet(), []


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


async def test_however_many_ask_the_fleet_is_looked_at_once_a_look() -> None:
    cluster, clock = Cluster(), Clock()
    watch = Watch(cluster.read, clock)
    assert json.loads(watch.fleet) == {"error": None}
    await watch.look()
    answers = {watch.fleet for _ in range(100)}
    assert cluster.looks == 1
    (answer,) = answers
    assert len(json.loads(answer)["replicas"]) == 9


async def test_it_looks_every_second_while_a_page_is_open_and_more_seldom_else() -> None:
    clock = Clock()
    watch = Watch(Cluster().read, clock)
    assert watch.period_s() == UNSEEN_PERIOD_S
    assert watch.fleet
    assert watch.period_s() == PERIOD_S
    clock.now_s += OPEN_FOR_S - 0.1
    assert watch.period_s() == PERIOD_S
    clock.now_s += 0.1
    assert watch.period_s() == UNSEEN_PERIOD_S


async def test_what_was_seen_stands_where_nobody_answers_and_that_is_said() -> None:
    cluster, clock = Cluster(), Clock()
    watch = Watch(cluster.read, clock)
    await watch.look()
    before = json.loads(watch.fleet)
    cluster.error = "the batch controller is gone"
    clock.now_s += 30
    await watch.look()
    assert json.loads(watch.fleet) == {**before, "error": "the batch controller is gone"}
    cluster.error = None
    await watch.look()
    after = json.loads(watch.fleet)
    assert (after["error"], after["read_unix_s"]) == (None, 1030.0)


async def test_it_goes_on_where_nobody_answered_until_it_is_ended() -> None:
    again = asyncio.Event()
    cluster = Cluster()

    async def read() -> tuple[dict[str, Any], Sequence[Deployment]]:
        if cluster.looks:
            again.set()
            return await cluster.read()
        cluster.looks += 1
        raise BrimfulError("not yet")

    watch = Watch(read)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    assert json.loads(watch.fleet)["error"] == "not yet"  # and a page is open
    await again.wait()
    task.cancel()
    assert cluster.looks == 2


def test_a_fleet_of_nobody_is_no_error() -> None:
    async def read() -> tuple[dict[str, Any], Sequence[Deployment]]:
        return snapshot_of(), []

    watch = Watch(read)
    asyncio.run(watch.look())
    assert json.loads(watch.fleet)["error"] is None


async def test_a_look_that_fails_for_any_reason_is_told_and_is_not_the_last() -> None:
    async def read() -> Any:
        looks.append(1)
        if len(looks) == 2:
            raise KeyError("replicas")
        return fleet(), []

    looks: list[int] = []
    watch = Watch(read, Clock())
    await watch.look()
    await watch.look()
    shown = json.loads(watch.fleet)
    assert shown["error"] == "the console cannot show the fleet: KeyError"
    assert len(shown["replicas"]) == 9
    await watch.look()
    assert json.loads(watch.fleet)["error"] is None
