"""Utility calls into EngineCore. ``exchange`` applies limits and returns the next report.

vLLM runs a utility method in the core loop between two steps, so nothing races with a step. The
module of the scheduler class is imported in every EngineCore process and adds the methods there; no
plugin entry point is needed.
"""

from typing import Any, Protocol

from controller.records import EngineReport, from_wire
from replicas.engine.governor import LOCAL
from replicas.engine.recorder import Recorder
from replicas.engine.step_recorder import StepRecorder
from replicas.engine.timeline import TimelineRecorder

METHOD, CONFIGURE, RECORD = "brimful_exchange", "brimful_configure", "brimful_record"
TIMELINE, STEPS, REQUESTS = "timeline", "steps", "requests"  # what is recorded
UNDRAINED_S = 30.0  # a recording ends if it is not drained for this long: three timeouts


class EngineClient(Protocol):
    """The part of vLLM's ``AsyncLLM`` used here."""

    engine_core: Any


def install() -> None:
    """Add the methods to ``EngineCore``; harmless when done twice."""
    from vllm.v1.engine.core import EngineCore

    setattr(EngineCore, METHOD, _exchange)
    setattr(EngineCore, CONFIGURE, _configure)
    setattr(EngineCore, RECORD, _record)


def _exchange(
    core: Any, limits: dict[str, Any] | None, replica_id: str, group: str, itl_frac: float = 1.0
) -> dict[str, Any]:
    return core.scheduler.exchange(limits, replica_id, group, itl_frac)


def _configure(core: Any, batching: dict[str, Any]) -> None:
    core.scheduler.configure(batching)


def _record(core: Any, kind: str, owner: str, on: bool) -> dict[str, Any] | None:
    """Drain the recorder of ``owner``; the scheduler keeps one of each kind at a time."""
    # Imported here: the vLLM of a ``Bystander`` may lack names that this module uses.
    from replicas.engine.request_recorder import RequestRecorder

    made: dict[str, type[Recorder]] = {
        TIMELINE: TimelineRecorder,
        STEPS: StepRecorder,
        REQUESTS: RequestRecorder,
    }
    scheduler, name = core.scheduler, f"{RECORD}_{kind}"
    recorder: Recorder | None = getattr(scheduler, name, None)
    if on and (recorder is None or not recorder.recording):
        recorder = made[kind](scheduler, owner, UNDRAINED_S)
        setattr(scheduler, name, recorder)
    if recorder is None or recorder.owner != owner:
        return None
    if not on:
        recorder.stop()
        delattr(scheduler, name)
    return recorder.drain()


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


async def record(
    client: EngineClient, kind: str, owner: str = "", *, on: bool
) -> dict[str, Any] | None:
    """What was recorded since the owner's last call; ``on``: whether recording goes on.

    Args:
        kind: TIMELINE, STEPS or REQUESTS.
        owner: the unique name of the caller. For REQUESTS it is equal on all replicas, as it is the
            key of the prefix hashes.

    Returns:
        As of ``Recorder.drain``; None if another owner's recorder is on, or none was.

    Raises:
        vllm's EngineDeadError: the engine process is gone.
    """
    drained: dict[str, Any] | None
    drained = await client.engine_core.call_utility_async(RECORD, kind, owner, on)
    return drained


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
