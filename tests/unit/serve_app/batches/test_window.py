"""How many requests of batches are under way at once."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.batches.window import FIRST, Window


async def test_a_full_window_of_answers_makes_room_for_one_more() -> None:
    window = Window(100)
    for _ in range(3):
        before = window.size
        for _ in range(before):
            await window.take()
        for _ in range(before):
            window.answered()
            await window.take()
        for _ in range(before):
            window.left()
        assert window.size in (before, before + 1)
    assert window.size > FIRST


async def test_refusals_of_requests_under_way_together_halve_it_once() -> None:
    window = Window(100)
    slots = [await window.take() for _ in range(8)]
    for slot in slots:
        window.refused(slot, 0.0)
    assert window.size == FIRST / 2
    await asyncio.sleep(0.01)
    window.refused(await window.take(), 0.0)
    assert window.size == FIRST / 4


async def test_whoever_no_longer_waits_takes_no_slot() -> None:
    window = Window(1)
    await window.take()
    gone = asyncio.create_task(window.take())
    stays = asyncio.create_task(window.take())
    await asyncio.sleep(0)
    window.left()  # given to `gone`, which is cancelled before it runs
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert await stays > 0


@given(st.integers(1, 20), st.lists(st.sampled_from(["take", "answered", "refused", "left"])))
def test_it_never_gives_more_than_it_has(most: int, events: list[str]) -> None:
    async def run() -> None:
        window, held = Window(most), list[int]()
        for event in events:
            if event == "take":
                asked = asyncio.create_task(window.take())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                if not asked.done():
                    asked.cancel()
                    await asyncio.gather(asked, return_exceptions=True)
                    continue
                assert len(held) < window.size
                held.append(asked.result())
            elif held:
                slot = held.pop()
                if event == "refused":
                    window.refused(slot, 0.0)
                else:
                    getattr(window, event)()
            assert 1 <= window.size <= most

    asyncio.run(run())


async def test_pauses_are_as_long_as_was_asked_up_to_a_minute_or_twice_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    window, loop, paused_s = Window(8), asyncio.get_running_loop(), list[float]()

    def soon(delay_s: float, call: Any) -> Any:
        paused_s.append(delay_s)
        return loop.call_soon(call)

    monkeypatch.setattr(loop, "call_later", soon)
    for asked_s in (None, None, None, 500.0, 7.0, -3.0):
        window.refused(await window.take(), asked_s)
    await window.take()
    window.answered()
    window.refused(await window.take(), None)
    assert paused_s == [1, 2, 4, 60, 7, 0, 1]
    for _ in range(20):
        window.refused(await window.take(), None)
    assert paused_s[-1] == 60
