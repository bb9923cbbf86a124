"""vLLM's scheduler goes on where our own code fails in the middle of it."""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from tests.vllm.harness import Rig, engine_config


def rig_of(tiny_llama, *, fails_open: bool) -> Rig:
    extra = {"brimful": {"batching": {"policy": "adaptive", "sla": {"itl_ms": 50}}}}
    return Rig(engine_config(tiny_llama, additional_config=extra), fails_open=fails_open)


def spoil(rig: Rig, monkeypatch) -> None:
    def fails(*args, **kwargs):
        raise ZeroDivisionError("of our own")

    for name in ("limits", "observe", "finished", "preempted"):
        monkeypatch.setattr(rig.scheduler.governor.step_half, name, fails)


@pytest.mark.parametrize("at", [0, 3])
def test_every_request_is_whole_though_the_policy_fails(tiny_llama, monkeypatch, at):
    rig = rig_of(tiny_llama, fails_open=True)
    for index in range(30):
        rig.add(f"r{index}", prompt=20 + 40 * (index % 5), output=30)
    rig.go_on(at)
    spoil(rig, monkeypatch)
    rig.run()
    assert rig.all_whole(30, 30)
    assert rig.exchange().own_errors > 30


OWN = ("_pacing.stepped", "_aside.observe", "_classes.measured", "_classes.come")
TOLD = ("arrived", "after_step", "first_token", "finished")


@pytest.mark.parametrize("what", [*OWN, *(f"governor.{name}" for name in TOLD)])
def test_and_though_what_happens_cannot_be_counted(tiny_llama, monkeypatch, what):
    sla = {"itl_ms": 50, "ttft_ms": 2000, "delivery": "paced"}
    extra = {"brimful": {"batching": {"policy": "adaptive", "sla": sla}}}
    rig = Rig(engine_config(tiny_llama, additional_config=extra), fails_open=True)

    def fails(*args, **kwargs):
        raise ZeroDivisionError("of our own")

    where, name = what.split(".")
    monkeypatch.setattr(getattr(rig.scheduler, where), name, fails)
    rig.add_all(10, prompt=20, output=5)
    rig.run()
    assert rig.all_whole(10, 5)
    assert rig.exchange().own_errors


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
