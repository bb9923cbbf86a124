"""What is recorded of vLLM's own scheduler while somebody asks, and that nothing is left of it."""

from functools import partial
from typing import Any

import pytest

from replicas.engine.channel import REQUESTS, STEPS, TIMELINE, UNDRAINED_S, _record
from replicas.engine.request_recorder import RequestRecorder
from replicas.engine.step_recorder import StepRecorder
from replicas.engine.timeline import TimelineRecorder
from tests.vllm.harness import Core, Rig


def rig(tiny_llama: Any, **args: Any) -> Rig:
    args = {"max_num_batched_tokens": 2048, "max_model_len": 2048, **args}
    return Rig.led(tiny_llama, step_s=0.5, **args)


def test_steps_have_what_was_computed_and_how_long_they_took(tiny_llama) -> None:
    made = rig(tiny_llama)
    recorder = StepRecorder(made.scheduler)
    made.add("a", prompt=20, output=3)
    for _ in range(3):
        made.step()
        made.now_s += 0.25  # between two steps
    assert recorder.drain() == {
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


@pytest.mark.parametrize("recorder", [StepRecorder, TimelineRecorder, RequestRecorder])
def test_what_is_scheduled_is_the_same_with_and_without_a_recorder(tiny_llama, recorder) -> None:
    def tokens(recorded: bool) -> tuple[float, dict[str, list[int]]]:
        made = rig(tiny_llama, max_num_seqs=8, blocks=129)
        if recorded:
            recorder(made.scheduler)
        for number in range(60):
            made.add(f"r{number}", prompt=77 * number % 660 + 1, output=number % 40 + 1)
        made.run()
        return made.now_s, made.tokens

    assert tokens(True) == tokens(False)


def test_each_request_once_it_has_ended(tiny_llama) -> None:
    made = rig(tiny_llama)
    made.add("before", prompt=20, output=2)
    recorder = RequestRecorder(made.scheduler, "me")
    made.add("a", prompt=20, output=3).arrival_time = 1000.0
    made.add("b", prompt=10, output=50).arrival_time = 1001.0
    made.add("c", prompt=10, output=50).arrival_time = 1002.0
    made.abort("c")
    made.go_on(4)
    made.abort("b")
    rows = recorder.drain()["requests"]
    names = "arrival_s", "input_tokens", "output_tokens", "max_tokens", "cancelled"
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1002.0, 10, 0, 50, True),
        (1000.0, 20, 3, 3, False),
        (1001.0, 10, 4, 50, True),
    ]
    assert recorder.drain() == {"requests": [], "lost": 0, "fresh": False}


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_timeline_begins_with_what_is_there_and_ends_without_a_trace(tiny_llama, in_flight):
    made = rig(tiny_llama, in_flight=in_flight, max_num_seqs=2)
    for name in "abc":
        made.add(name, prompt=5, output=4)
    made.go_on(in_flight + 1)
    before = set(vars(made.scheduler))
    core = Core(made)
    opened = _record(core, TIMELINE, "", True)["open"]
    assert sorted((bar[0], bar[2], bar[3]) for bar in opened) == [
        ("a", "decode", 0),
        ("b", "decode", 1),
        ("c", "waiting", -1),
    ]
    made.run()
    closed = _record(core, TIMELINE, "", True)["closed"]
    assert [bar[2] for bar in closed if bar[0] == "c"] == ["waiting", "prefill", "decode"]
    assert _record(core, TIMELINE, "", False) is not None
    assert set(vars(made.scheduler)) == before
    assert _record(core, TIMELINE, "", False) is None


@pytest.mark.parametrize("kind", [REQUESTS, STEPS, TIMELINE])
def test_one_at_a_time_is_told_from_outside_until_nobody_asks(tiny_llama, kind) -> None:
    ask = partial(_record, kind=kind)
    made = rig(tiny_llama)
    core, before = Core(made), set(vars(made.scheduler))
    assert ask(core, owner="me", on=False) is None
    ask(core, owner="me", on=True)
    assert (ask(core, owner="another", on=True), ask(core, owner="another", on=False)) == (
        None,
        None,
    )
    made.add("a", prompt=20, output=2)
    made.run()
    assert any(ask(core, owner="me", on=False).values())
    assert set(vars(made.scheduler)) == before
    # One that nobody drains ends, and the next call begins another.
    ask(core, owner="me", on=True)
    made.now_s += UNDRAINED_S + 1
    made.add("b", prompt=20, output=2)
    made.run()
    assert ask(core, owner="another", on=True) is not None
