"""Utility calls into EngineCore. ``exchange`` applies limits and returns the next report.

vLLM runs a utility method in the core loop between two steps, so nothing races with a step. The
module of the scheduler class is imported in every EngineCore process and adds the methods there; no
plugin entry point is needed.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from controller.records import EngineReport, from_wire
from replicas.engine.governor import LOCAL
from replicas.engine.step_recorder import StepRecorder
from replicas.engine.timeline import Recorder

METHOD, CONFIGURE = "brimful_exchange", "brimful_configure"
TIMELINE, STEPS, REQUESTS = "brimful_timeline", "brimful_steps", "brimful_requests"
UNDRAINED_S = 30.0  # a recording ends if it is not drained for this long: three timeouts


class EngineClient(Protocol):
    """The part of vLLM's ``AsyncLLM`` used here."""

    engine_core: Any


def install() -> None:
    """Add the methods to ``EngineCore``; harmless when done twice."""
    from vllm.v1.engine.core import EngineCore

    setattr(EngineCore, METHOD, _exchange)
    setattr(EngineCore, CONFIGURE, _configure)
    setattr(EngineCore, TIMELINE, _timeline)
    setattr(EngineCore, STEPS, _steps)
    setattr(EngineCore, REQUESTS, _requests)


def _exchange(
    core: Any, limits: dict[str, Any] | None, replica_id: str, group: str, itl_frac: float = 1.0
) -> dict[str, Any]:
    return core.scheduler.exchange(limits, replica_id, group, itl_frac)


def _configure(core: Any, batching: dict[str, Any]) -> None:
    core.scheduler.configure(batching)


def _timeline(core: Any, on: bool) -> dict[str, Any] | None:
    return _recorded(core.scheduler, TIMELINE, lambda scheduler, *_: Recorder(scheduler), "", on)


def _steps(core: Any, owner: str, on: bool) -> dict[str, list[int]] | None:
    return _recorded(core.scheduler, STEPS, StepRecorder, owner, on)


def _requests(core: Any, owner: str, on: bool) -> dict[str, Any] | None:
    from replicas.engine.request_recorder import RequestRecorder  # it imports vLLM

    return _recorded(core.scheduler, REQUESTS, RequestRecorder, owner, on)


def _recorded(
    scheduler: Any, name: str, make: Callable[[Any, str, float], Any], owner: str, on: bool
) -> dict[str, Any] | None:
    """Drain the recorder of ``owner``; the scheduler keeps one recorder at a time."""
    recorder = getattr(scheduler, name, None)
    if on and (recorder is None or not recorder.recording):
        recorder = make(scheduler, owner, UNDRAINED_S)
        setattr(scheduler, name, recorder)
    if recorder is None or recorder.owner != owner:
        return None
    if not on:
        recorder.stop()
        delattr(scheduler, name)
    drained: dict[str, Any] = recorder.drain()
    return drained


async def exchange(
    client: EngineClient,
    limits: dict[str, Any] | None,
    replica_id: str,
    group: str,
    itl_frac: float = 1.0,
) -> dict[str, Any]:
    """Apply ``limits`` (None: keep the present ones) in the engine; returns its report, wire form.

    Takes about one engine step. With vLLM's own data parallelism every engine gets the limits, and
    the first one reports.

    Args:
        itl_frac: the share of the SLA that steps may take (``controller.law.client_feedback``).

    Raises:
        vllm's EngineDeadError: the engine process is gone.
    """
    return await client.engine_core.call_utility_async(METHOD, limits, replica_id, group, itl_frac)


async def configure(client: EngineClient, batching: dict[str, Any]) -> None:
    """Give a running engine another batching block.

    Raises:
        Exception: vLLM's own, with the message of a ``ConfigError``: the block does not fit the
            engine, which keeps its own.
        vllm's EngineDeadError: the engine process is gone.
    """
    await client.engine_core.call_utility_async(CONFIGURE, batching)


async def timeline(client: EngineClient, *, on: bool) -> dict[str, Any]:
    """Bars of the batch since the last call; ``on``: whether recording goes on.

    Returns:
        As of ``Timeline.drain``.

    Raises:
        vllm's EngineDeadError: the engine process is gone.
    """
    drained: dict[str, Any] = await client.engine_core.call_utility_async(TIMELINE, on)
    return drained


async def steps(client: EngineClient, owner: str, *, on: bool) -> dict[str, list[int]] | None:
    """Steps since the owner's last call; ``on``: whether recording goes on.

    Args:
        owner: the unique name of the recorder.

    Returns:
        As of ``StepRecorder.drain``; None if another recorder is on, or none was.

    Raises:
        vllm's EngineDeadError: the engine process is gone.
    """
    drained: dict[str, list[int]] | None
    drained = await client.engine_core.call_utility_async(STEPS, owner, on)
    return drained


async def requests(client: EngineClient, owner: str, *, on: bool) -> dict[str, Any] | None:
    """Requests that ended since the owner's last call; ``on``: whether recording goes on.

    Args:
        owner: the unique name of the recorder, equal on all replicas: it is the key of the prefix
            hashes.

    Returns:
        As of ``RequestRecorder.drain``; None if another recorder is on, or none was.

    Raises:
        vllm's EngineDeadError: the engine process is gone.
    """
    core = client.engine_core
    # One utility call reaches every engine of vLLM's data parallelism, but returns one answer.
    found = await asyncio.gather(
        *(core._call_utility_async(REQUESTS, owner, on, engine=one) for one in core.core_engines)
    )
    if None in found:
        return None
    return {
        "requests": [row for drained in found for row in drained["requests"]],
        "lost": sum(drained["lost"] for drained in found),
        "fresh": any(drained["fresh"] for drained in found),
    }


def read_report(llm: Any) -> EngineReport:
    """The report of the engine behind a ``vllm.LLM``, which has no controller.

    Args:
        llm: between two calls of its methods, or two steps of its ``llm_engine``.
    """
    core = llm.llm_engine.engine_core
    if hasattr(core, "call_utility"):
        wire = core.call_utility(METHOD, None, LOCAL, LOCAL)
    else:  # VLLM_ENABLE_V1_MULTIPROCESSING=0: the engine lives in this process
        wire = getattr(core.engine_core, METHOD)(None, LOCAL, LOCAL)
    return from_wire(EngineReport, wire)
