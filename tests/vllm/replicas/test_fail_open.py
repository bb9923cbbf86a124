"""vLLM's scheduler goes on where our own code fails in the middle of it."""

from operator import attrgetter
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from controller.records import Reserve
from tests.vllm.harness import Rig, engine_config, limits


def rig_of(tiny_llama, *, fails_open: bool, classes: Any = None) -> Rig:
    sla = {"itl_ms": 50, "ttft_ms": 2000}
    extra = {"brimful": {"batching": {"policy": "adaptive", "sla": sla}}}
    if classes:
        extra["brimful"]["classes"] = classes
    return Rig(engine_config(tiny_llama, additional_config=extra), fails_open=fails_open)


def fails(*args, **kwargs):
    raise ZeroDivisionError("of our own")


def spoil(rig: Rig, monkeypatch, what: str) -> None:
    """This method of the scheduler, or of a part of it, fails from now on."""
    *part, name = what.split(".")
    monkeypatch.setattr(
        attrgetter(".".join(part))(rig.scheduler) if part else rig.scheduler, name, fails
    )


LIMITS = ("_set_limits", "state", "governor.before_step", "governor.limiter.limits")
TABLES = ("_waiting", "_reader.batch_table", "_reader.queue_table", "governor._fallback.exchange")
NOTED = ("_note_scheduled", "_counts.scheduled", "_measure", "_intervals.of", "_counts.leave")
OWN = ("_aside.observe", "_classes.measured", "_classes.come", "governor.log.add")
TOLD = tuple(f"governor.{name}" for name in ("arrived", "after_step", "first_token", "finished"))


@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("what", [*LIMITS, *TABLES, *NOTED, *OWN, *TOLD])
def test_every_request_is_whole_though_our_own_code_fails(tiny_llama, monkeypatch, what, at):
    classes = {"gold": {"itl_ms": 20, "default": True}, "batch": {}} if "_classes" in what else {}
    rig = rig_of(tiny_llama, fails_open=True, classes=classes)
    for index in range(30):
        rig.add(f"r{index}", prompt=20 + 40 * (index % 5), output=30)
    rig.go_on(at)
    spoil(rig, monkeypatch, what)
    rig.step_s = 0.05  # several periods
    rig.add("last", prompt=20, output=5)
    rig.run()
    assert rig.is_whole("last", 5)
    assert all(rig.is_whole(f"r{index}", 30) for index in range(30))
    monkeypatch.undo()
    assert rig.exchange().own_errors


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


def test_a_report_that_fails_leaves_the_limits_that_came(tiny_llama, monkeypatch):
    rig = Rig.led(tiny_llama, {"policy": "adaptive"}, fails_open=True)
    with monkeypatch.context() as spoilt:
        spoil(rig, spoilt, "_reader.batch_table")
        with pytest.raises(ZeroDivisionError):
            rig.exchange(limits(4, reserve=Reserve()))
    rig.add_all(10, prompt=20, output=5)
    rig.step()
    assert len(rig.scheduler.running) == 4
    rig.run()
    assert rig.all_whole(10, 5)


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
