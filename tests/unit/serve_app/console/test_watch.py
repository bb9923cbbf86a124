"""How often the fleet is looked at, and what stands when nobody answers."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from controller.errors import BrimfulError
from serve_app.console.view import Deployment
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet


class Cluster:
    """Answers with a fleet, or not at all; counts how often it was asked."""

    def __init__(self) -> None:
        self.looks = 0
        self.error: Exception | None = None

    async def read(self) -> tuple[dict[str, Any], Sequence[Deployment]]:
        self.looks += 1
        if self.error:
            raise self.error
        return fleet(), []


async def test_however_many_ask_the_fleet_is_looked_at_once_a_look() -> None:
    cluster = Cluster()
    watch = Watch(cluster.read)
    assert json.loads(watch.fleet) == {"error": None}
    await watch.look()
    (answer,) = {watch.fleet for _ in range(100)}
    assert cluster.looks == 1
    assert len(json.loads(answer)["replicas"]) == 9


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BrimfulError("the batch controller is gone"), "the batch controller is gone"),
        (KeyError("replicas"), "the console cannot show the fleet: KeyError"),
    ],
)
async def test_what_was_seen_stands_where_nobody_answers_and_that_is_said(
    error: Exception, said: str
) -> None:
    cluster = Cluster()
    watch = Watch(cluster.read)
    await watch.look()
    before = json.loads(watch.fleet)
    cluster.error = error
    await watch.look()
    assert json.loads(watch.fleet) == {**before, "error": said}
    cluster.error = None
    await watch.look()
    assert json.loads(watch.fleet)["error"] is None
