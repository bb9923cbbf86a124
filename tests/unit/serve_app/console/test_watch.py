"""How often the fleet is looked at, and what stands when nobody answers."""

import json
from collections.abc import Sequence
from typing import Any

from controller.errors import BrimfulError
from serve_app.console.deployments import Deployment
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet


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
