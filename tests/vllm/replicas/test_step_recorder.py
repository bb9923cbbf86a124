"""Steps of vLLM's own scheduler as they are recorded, and that nothing changes for it."""

from typing import Any

import pytest

from replicas.engine.channel import STEPS, UNDRAINED_S, _steps
from replicas.engine.request_recorder import RequestRecorder
from replicas.engine.step_recorder import StepRecorder
from replicas.engine.timeline import Recorder
from tests.vllm.harness import Core, Rig, batching, engine_config


def rig(tiny_llama: Any, in_flight: int = 1, **args: Any) -> Rig:
    args = {"max_num_seqs": 2, "async_scheduling": in_flight == 2, **args}
    config = engine_config(tiny_llama, additional_config=batching(), **args)
    return Rig(config, in_flight=in_flight, step_s=0.5)


def test_a_prompt_and_its_decodes(tiny_llama) -> None:
    made = rig(tiny_llama)
    recorder = StepRecorder(made.scheduler)
    made.add("a", prompt=20, output=3)
    for _ in range(3):
        made.step()
        made.now_s += 0.25  # between two steps
    steps = recorder.drain()
    assert steps == {
        "decodes": [0, 1, 1],
        "kv_tokens": [0, 20, 21],
        "prefill_tokens": [20, 0, 0],
        "prefill_context": [200, 0, 0],
        "duration_us": [500_000, 750_000, 750_000],
    }
    made.now_s += 60.0  # idle
    made.add("b", prompt=20, output=2)
    made.run()
    assert recorder.drain()["duration_us"] == [500_000, 500_000]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_every_step_and_every_token_is_recorded_once(tiny_llama, in_flight: int) -> None:
    made = rig(tiny_llama, in_flight, max_num_seqs=8)
    recorder = StepRecorder(made.scheduler)
    for number in range(1, 13):
        made.add(f"r{number}", prompt=number, output=number)
    made.run()
    steps = recorder.drain()
    assert len({len(column) for column in steps.values()}) == 1
    assert (sum(steps["prefill_tokens"]), sum(steps["decodes"])) == (78, 78 - 12)
    assert sum(steps["duration_us"]) == pytest.approx((made.now_s - 100.0) * 1e6)


@pytest.mark.parametrize("recorder", [StepRecorder, Recorder, lambda s: RequestRecorder(s, "me")])
def test_what_is_scheduled_is_the_same_with_and_without_a_recorder(tiny_llama, recorder) -> None:
    def tokens(recorded: bool) -> tuple[float, dict[str, list[int]]]:
        made = rig(tiny_llama, max_num_seqs=8, blocks=24)
        if recorded:
            recorder(made.scheduler)
        for number in range(30):
            made.add(f"r{number}", prompt=7 * number % 60 + 1, output=number % 40 + 1)
        made.run()
        return made.now_s, made.tokens

    assert tokens(True) == tokens(False)


def test_a_step_in_which_the_clock_jumped_is_left_out(tiny_llama) -> None:
    made = rig(tiny_llama)
    recorder = StepRecorder(made.scheduler)
    made.add("a", prompt=20, output=3)
    made.step()
    made.now_s -= 5.0
    made.step()
    made.step()
    assert recorder.drain()["duration_us"] == [500_000, 500_000]


def test_it_is_asked_for_from_outside_and_ends_without_a_trace(tiny_llama) -> None:
    made = rig(tiny_llama)
    core, before = Core(made), (set(vars(made.scheduler)), set(vars(made.scheduler.governor)))
    assert _steps(core, "me", False) is None
    assert not any(_steps(core, "me", True).values())
    assert _steps(core, "another", True) is None
    made.add("a", prompt=20, output=200)
    made.step()
    assert _steps(core, "me", True)["prefill_tokens"] == [20]
    made.step()
    assert _steps(core, "another", False) is None
    assert _steps(core, "me", False)["decodes"] == [1]
    assert (set(vars(made.scheduler)), set(vars(made.scheduler.governor))) == before
    # One that nobody drains ends, and the next call begins another.
    _steps(core, "me", True)
    while made.scheduler.brimful_steps.recording:
        made.step()
    assert made.now_s == pytest.approx(101.0 + UNDRAINED_S, abs=1.1)
    assert not any(_steps(core, "another", True).values())
    made.step()
    assert _steps(core, "another", True)["decodes"] == [1]
    assert getattr(made.scheduler, STEPS).recording
