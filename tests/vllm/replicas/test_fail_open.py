"""vLLM's scheduler goes on where our own code fails in the middle of it."""

import sys
from collections import Counter
from collections.abc import Callable
from itertools import count
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any

import pytest
from vllm.config import KVTransferConfig
from vllm.v1.core.sched.scheduler import Scheduler

from controller.fail_open import Guard
from controller.records import Reserve
from replicas.engine import queue_order, waiting_queues
from replicas.engine.channel import REQUESTS, TIMELINE, _record
from replicas.workarounds.vllm_private import ROOT
from tests.vllm.harness import OWN, Core, Rig, engine_config, limits, ngram
from tests.vllm.replicas.test_loads import Loading


def rig_of(tiny_llama, *, fails_open: bool, cls: type[Rig] = Rig, **options: Any) -> Rig:
    batching = {"policy": "adaptive", "sla": {"itl_ms": 50, "ttft_ms": 2000}}
    batching["enforce"] = options.pop("enforce", True)
    extra: dict[str, Any] = {"batching": batching}
    if classes := options.pop("classes", None):
        extra["classes"] = classes
    own = {name: options.pop(name) for name in OWN & options.keys()}
    config = engine_config(tiny_llama, additional_config={"brimful": extra}, **options)
    return cls(config, fails_open=fails_open, **own)


def fails(*args, **kwargs):
    raise ZeroDivisionError("of our own")


def spoil(rig: Rig, monkeypatch, what: str) -> None:
    """This method of the scheduler, or of a part of it, fails from now on."""
    *part, name = what.split(".")
    monkeypatch.setattr(
        attrgetter(".".join(part))(rig.scheduler) if part else rig.scheduler, name, fails
    )


LIMITS = ("_set_limits", "state", "governor.before_step", "governor.limiter.limits")


OURS = tuple(f"{ROOT / name}/" for name in ("controller", "replicas"))
# What vLLM calls or waits for: the part of each that may fail is in a call of its own.
ENTRIES = {"schedule", "update_from_output", "add_request", "_preempt_request", "_free_request"}
ENTRIES |= {"asked", "allocated", "call", "get_num_unfinished_requests", "attempt"}
# A queue of ours stands in for vLLM's own: what vLLM asks of it cannot be done without.
QUEUES = {queue_order.__file__, waiting_queues.__file__}
CONNECTOR = {"kv_connector": "Remote", "kv_role": "kv_both"}
CONNECTOR["kv_connector_module_path"] = "tests.vllm.replicas.test_loads"
RIGS: dict[str, dict[str, Any]] = {
    "SLA": {},
    "classes": {"classes": {"gold": {"itl_ms": 20, "default": True}, "batch": {}}},
    "short memory": {
        "blocks": 24,
        "scheduling_policy": "priority",
        "enable_prefix_caching": True,
    },
    "drafts": {"speculative_config": ngram(3)},
    "transfers": {"blocks": 60, "kv_transfer_config": KVTransferConfig(**CONNECTOR)},
    "preemptions": {"enforce": False, "blocks": 24},
}


def is_guarded(frame: FrameType | None) -> bool:
    while frame and frame.f_code is not Guard.attempt.__code__:
        frame = frame.f_back
    return frame is not None


def serve(tiny_llama, options: dict[str, Any], call: Callable[[CodeType], None]) -> Rig:
    """A run in which every request is whole; before each call of ours ``call`` has its code."""

    def trace(frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(OURS) or code.co_name in ENTRIES:
            return
        if code.co_filename not in QUEUES or is_guarded(frame):
            call(code)

    cls = Loading if "kv_transfer_config" in options else Rig
    rig = rig_of(tiny_llama, fails_open=True, cls=cls, accepted=1, step_s=0.05, **options)
    _record(Core(rig), TIMELINE, "", True)
    _record(Core(rig), REQUESTS, "test", True)
    asked = {f"r{index}": 3 + 3 * (index % 3) for index in range(10)}
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for index, (name, output) in enumerate(asked.items()):
            rig.add(name, 20 + 40 * (index % 5), output, priority=index % 3)
            rig.go_on(index % 2)
        rig.run()
    finally:
        sys.settrace(before)
    assert all(rig.is_whole(name, output) for name, output in asked.items())
    return rig


def test_every_request_is_whole_whichever_call_of_ours_fails(tiny_llama):
    """The first call raises of each function that a step calls, or one halfway."""
    known, failed = set[CodeType](), []
    for name, options in RIGS.items():
        called = Counter[CodeType]()
        serve(tiny_llama, options, lambda code, called=called: called.update([code]))
        for code in called.keys() - known:
            for at in {1, 1 + called[code] // 2}:
                left, raised = count(at, -1), []

                def fails(one, code=code, left=left, raised=raised):
                    if one is code and next(left) == 1:
                        raised.append(code)
                        raise ZeroDivisionError("of our own")

                try:
                    # A function that remembers its answers may not be called again.
                    rig = serve(tiny_llama, options, fails)
                    assert rig.exchange().own_errors == len(raised)
                except Exception as error:
                    failed.append(f"{name}: {code.co_qualname}, call {at}: {error!r}")
        known |= called.keys()
    assert not failed, "\n".join(failed)
    named = {code.co_name for code in known}
    assert named >= {"_note_preempted", "_note_resumed", "_note_accepted", "_place", "reorder"}


@pytest.mark.parametrize("what", LIMITS)
def test_the_last_limits_hold_for_a_lease_then_vllms_own(tiny_llama, monkeypatch, what):
    block = {"policy": "adaptive", "sla": {"itl_ms": 50}, "lease_s": 5}
    rig = Rig.led(tiny_llama, block, fails_open=True)
    rig.exchange(limits(4, reserve=Reserve()))
    rig.add_all(40, prompt=20, output=600)
    rig.go_on(5)
    assert len(rig.scheduler.running) == 4
    spoil(rig, monkeypatch, what)
    rig.go_on(5)
    assert len(rig.scheduler.running) == 4
    rig.now_s += 5.0
    rig.go_on(5)
    assert len(rig.scheduler.running) == 40


def test_errors_of_vllm_stay_its_own(tiny_llama, monkeypatch):
    rig, calls = rig_of(tiny_llama, fails_open=True), []

    def fails(self, *args, **kwargs):
        calls.append(args)
        raise KeyError("of vLLM")

    rig.add("r", prompt=20, output=5)
    monkeypatch.setattr(Scheduler, "schedule", fails)
    with pytest.raises(KeyError, match="of vLLM"):
        rig.step()
    assert len(calls) == 1
    assert rig.exchange().own_errors == 0
