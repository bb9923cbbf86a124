"""What ``serve_app.haproxy`` changes in the configuration that Ray 2.60 writes, by HAProxy itself.

No cluster is started: Ray's own code writes the configuration and starts HAProxy, before servers
that answer, die or are not there.
"""

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from openai import APIConnectionError, APIStatusError, NotFoundError
from ray.serve._private import haproxy

from serve_app.haproxy import (
    ASKED,
    BEFORE,
    ENVIRONMENT,
    ERROR_FILE,
    NO_ROUTE,
    ROUTER_FAILED,
    ROUTES,
)
from serve_app.haproxy_watch import AGAIN_PID, PID, Ended, wait_for
from tests.ray.haproxy_stack import BUFSIZE, Start, start

__all__ = ["start"]  # a fixture


def test_ray_takes_how_long_answers_outlast_a_reload_and_keeps_ports_as_long() -> None:
    code = (
        "from ray.serve._private import constants, haproxy;"
        " print(haproxy.RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S, constants.RAY_SERVE_PORT_QUARANTINE_S)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | ENVIRONMENT, capture_output=True, text=True
    )
    assert said.stdout.split() == ["1800", "1830.0"], said.stderr
    assert "hard-stop-after {{ config.hard_stop_after_s }}s" in haproxy.HAPROXY_CONFIG_TEMPLATE


def test_what_is_changed_stands_in_what_ray_writes() -> None:
    template = haproxy.HAPROXY_CONFIG_TEMPLATE
    assert len(ERROR_FILE.findall(template)) == 3
    assert len(NO_ROUTE.findall(template)) == 1
    assert len(ROUTER_FAILED.findall(template)) == template.count(ROUTES) == 1
    lua = haproxy._load_lua_template().template
    assert lua.count(ASKED) == lua.count(BEFORE) == 1
    assert lua.count("local function call_router(router, ") == 1
    # Where no router chose, the backend without one comes next.
    assert "use_backend {{ backend.name or 'unknown' }} if is_" in template


async def test_a_request_whose_replica_dies_without_a_byte_is_served_by_another(
    start: Start,
) -> None:
    stack = await start("dies", "answers")
    size = BUFSIZE - 8192
    answers = [await stack.post(size) for _ in range(4)]
    assert [status for status, _ in answers] == [200] * 4
    assert stack.replicas[0].asked >= 1


async def test_what_does_not_fit_into_the_buffer_is_told_to_come_again(start: Start) -> None:
    stack = await start("dies", "dies")
    status, headers = await stack.post(2 * BUFSIZE)
    assert (status, headers["retry-after-ms"]) == (503, "1000")


async def test_a_router_that_is_not_there_is_passed_by(start: Start) -> None:
    stack = await start("answers", "answers")
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4


async def test_a_router_that_does_not_answer_is_left_alone_for_a_while(start: Start) -> None:
    stack = await start("answers", "answers", router="dies")
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert stack.router.asked == 1


async def test_a_router_that_may_have_headers_to_add_is_not_passed_by(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY", "1")
    stack = await start("answers", router="dies")
    assert (await stack.post())[0] == 503


async def test_without_our_command_ray_answers_503_for_its_router(start: Start) -> None:
    stack = await start("answers", router="dies", ours=False)
    assert (await stack.post())[0] == 503
    assert "brimful" not in stack.configuration


async def test_where_no_replica_is_left_a_stock_client_is_told_to_come_again(
    start: Start,
) -> None:
    stack = await start("gone", "gone")
    async with stack.client(retries=0) as client:
        with pytest.raises(APIStatusError) as caught:
            await client.completions.create(model="m", prompt="a")
    error = caught.value
    assert error.status_code == 503
    assert error.type == "service_unavailable"
    assert error.response.headers["retry-after-ms"] == "1000"
    assert error.response.headers["x-brimful-reason"] == "no_replica"


async def test_while_no_application_is_up_a_stock_client_is_told_to_come_again(
    start: Start,
) -> None:
    stack = await start("answers", router="dies")
    stack.api.set_backend_configs({})
    await stack.api.reload()
    async with stack.client(retries=0) as client:
        with pytest.raises(APIStatusError) as caught:
            await client.completions.create(model="m", prompt="a")
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "1"


async def test_a_path_of_no_application_is_a_404_in_openais_shape(start: Start) -> None:
    stack = await start("answers", prefix="/llm")
    async with stack.client(retries=0) as client:
        with pytest.raises(NotFoundError) as caught:
            await client.completions.create(model="m", prompt="a")
    assert caught.value.body["type"] == "not_found_error"


async def test_a_haproxy_that_is_killed_serves_again_before_ray_notices(start: Start) -> None:
    stack = await start("answers", "answers", router="dies")
    assert (await stack.post())[0] == 200
    stack.api._proc.kill()
    async with stack.client() as client:  # its two repeats are enough
        await client.completions.create(model="m", prompt="a")
    assert not await stack.api.is_running()  # so Ray will start the next one
    await stack.start_anew()
    assert (await stack.post())[0] == 200
    assert await stack.api.is_running()


async def test_a_haproxy_outlives_its_manager_until_the_next_one_takes_over(start: Start) -> None:
    stack = await start("answers", "answers", router="dies")
    mine = stack.api._proc
    command = [str(stack.folder / "haproxy"), "-db", "-f", str(stack.folder / "haproxy.cfg")]
    code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    manager = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *command, start_new_session=True
    )
    await mine.wait()  # the next one's has taken its place
    orphan = Ended(int((stack.folder / PID).read_text()))
    os.killpg(manager.pid, signal.SIGKILL)  # as the raylet does
    await manager.wait()
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    await stack.start_anew()
    await asyncio.to_thread(wait_for, orphan)
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert stack.api._proc.pid == int((stack.folder / PID).read_text())


async def test_a_reload_starts_nothing_in_the_place_of_the_one_that_ends(start: Start) -> None:
    stack = await start("answers", "answers", router="dies")
    first = stack.api._proc
    await stack.api.reload()
    await first.wait()
    assert stack.api._proc is not first
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert not (stack.folder / AGAIN_PID).exists()


async def test_a_stream_whose_replica_is_killed_is_an_error_at_a_stock_client(
    start: Start,
) -> None:
    # HAProxy cannot add an event to it: the chunked body ends without its last chunk.
    stack = await start("breaks")
    async with stack.client() as client:
        chunks = aiter(await client.completions.create(model="m", prompt="a", stream=True))
        assert (await anext(chunks)).choices[0].text == "a"
        with pytest.raises(APIConnectionError) as caught:
            await anext(chunks)
    assert "incomplete chunked read" in str(caught.value.__cause__)
