"""One question a second to a replica, however many pages show its batch."""

import asyncio
from typing import Any

from controller.errors import BrimfulError
from serve_app.console.app import timeline_of
from serve_app.console.deployments import Deployment
from serve_app.console.timelines import FRESH_S, Timelines
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet

WHERE = Deployment("llm", "BrimfulServer:m", "m", False, "HEALTHY", 1, 1, ("r1",))


class Replica:
    """Answers when it is let; counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: BrimfulError | None = None
        self.now_s = 0.0
        self.timelines = Timelines(self.ask, lambda: self.now_s)

    async def ask(self, deployment: Deployment, replica_id: str) -> dict[str, Any]:
        self.asked.append(replica_id)
        await self.go_on.wait()
        if self.error:
            raise self.error
        return {"bars": len(self.asked)}


async def test_pages_share_an_answer_for_a_second() -> None:
    replica = Replica()
    replica.go_on.clear()
    pages = [asyncio.create_task(replica.timelines.of(WHERE, "r1")) for _ in range(5)]
    await asyncio.sleep(0)
    pages[0].cancel()  # who leaves takes it from no other
    replica.go_on.set()
    assert await asyncio.gather(*pages[1:]) == [{"bars": 1}] * 4
    replica.now_s = FRESH_S - 0.01
    assert await replica.timelines.of(WHERE, "r1") == {"bars": 1}
    replica.now_s = FRESH_S
    assert await replica.timelines.of(WHERE, "r1") == {"bars": 2}
    assert await replica.timelines.of(WHERE, "r2") == {"bars": 3}


async def test_a_page_asks_by_the_replicas_name() -> None:
    replica = Replica()

    async def read() -> Any:
        return fleet(), [WHERE]

    watch = Watch(read)
    assert (await timeline_of(watch, replica.timelines, {"replica": "r1"}))[0] == 404
    await watch.look()
    assert await timeline_of(watch, replica.timelines, {"replica": "r1"}) == (200, {"bars": 1})
    for query in ({}, {"replica": ""}, {"replica": "r2"}):
        assert (await timeline_of(watch, replica.timelines, query))[0] == 404
    assert (await timeline_of(watch, None, {"replica": "r1"}))[0] == 404
    replica.error, replica.now_s = BrimfulError("no answer"), 9.0
    known = await timeline_of(watch, replica.timelines, {"replica": "r1"})
    assert known == (503, {"error": "no answer"})
