"""A body over the limit: how much of it is read and thrown away before the client is told."""

import asyncio
from typing import Any

import pytest

from replicas.door import http
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security

LIMIT = 1000  # bytes


class Client:
    """One that sends parts of a body, for as long as it is read, and hears of an answer."""

    def __init__(self, parts: list[int], *, said: int | None = None, stops: bool = False) -> None:
        self.parts, self.stops = parts, stops
        self.headers = [] if said is None else [(b"content-length", str(said).encode())]
        self.read = 0
        self.status: int | None = None

    async def receive(self) -> Any:
        if self.read == len(self.parts):
            assert self.stops, "read on after the last part"
            await asyncio.Event().wait()
        self.read += 1
        more = self.stops or self.read < len(self.parts)
        body = b"x" * self.parts[self.read - 1]
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Any) -> None:
        self.status = self.status or message["status"]


async def ask(client: Client) -> Client:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it came in")

    door = Door(Rules(parse_security({"limits": {"max_body_mb": LIMIT / 1e6}})))
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": client.headers}
    await DoorMiddleware(app, door)(scope, client.receive, client.send)
    assert client.status == 413
    return client


@pytest.mark.parametrize("said", [None, 3000])
async def test_what_is_left_of_it_is_read_to_its_end(said: int | None) -> None:
    assert (await ask(Client([600] * 5, said=said))).read == 5


async def test_a_body_whose_last_part_was_too_much_is_read_no_further() -> None:
    assert (await ask(Client([600, 600]))).read == 2


async def test_of_one_that_is_announced_as_far_too_long_nothing_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "MOST_DISCARDED_BYTES", 5000)
    assert (await ask(Client([600] * 20, said=5001))).read == 0
    assert (await ask(Client([600] * 20, said=5000))).read == 9  # to the first byte over it


async def test_one_that_goes_on_for_ever_is_read_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_DISCARDED_BYTES", 5000)
    assert (await ask(Client([600] * 20))).read == 9


async def test_one_that_stops_in_the_middle_is_waited_for_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "DISCARDING_S", 0.05)
    assert (await ask(Client([600] * 3, stops=True))).read == 3
