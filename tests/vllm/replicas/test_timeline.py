"""What is recorded of vLLM's own scheduler while somebody looks, and that nothing is left of it."""

from collections.abc import Callable
from typing import Any

import pytest

from replicas.engine.channel import TIMELINE, _timeline
from replicas.engine.hooks import CHAINS
from replicas.engine.timeline import Recorder
from tests.vllm.harness import BLOCK, Core, Rig, batching, engine_config


@pytest.fixture
def rig(tiny_llama) -> Callable[..., Rig]:
    def make(in_flight: int = 1, **args: Any) -> Rig:
        config = engine_config(tiny_llama, additional_config=batching(), **args)
        return Rig(config, in_flight=in_flight, step_s=1.0)

    return make


def states(bars: list[tuple], name: str) -> list[tuple[str, int]]:
    return [(bar[2], bar[3]) for bar in bars if bar[0] == name]


def test_a_requests_life_is_told_in_its_states(rig) -> None:
    made = rig(max_num_seqs=2)
    recorder = Recorder(made.scheduler)
    for name in "abc":
        made.add(name, prompt=5, output=3)
    made.run()
    bars = recorder.timeline.drain(made.now_s)["closed"]
    assert states(bars, "a") == states(bars, "c")[1:] == [("prefill", 0), ("decode", 0)]
    assert states(bars, "b") == [("prefill", 1), ("decode", 1)]
    assert states(bars, "c")[0] == ("waiting", -3)  # a and b started before any time passed
    lasted = {bar[2]: bar[5] - bar[4] for bar in bars if bar[0] == "a"}
    assert lasted == {"prefill": 1.0, "decode": 2.0}
    assert recorder.timeline.drain(made.now_s)["open"] == []


def test_who_is_preempted_gives_its_slot_back(rig) -> None:
    made = rig(blocks=9, max_num_seqs=2)
    recorder = Recorder(made.scheduler)
    made.add("a", prompt=3 * BLOCK, output=BLOCK + 5)
    made.add("b", prompt=3 * BLOCK, output=BLOCK + 5)
    made.run()
    told = states(recorder.timeline.drain(made.now_s)["closed"], "b")
    assert [state for state, _ in told] == ["prefill", "decode", "preempted", "prefill", "decode"]
    assert [row < 0 for _, row in told] == [False, False, True, False, False]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_it_begins_with_what_is_there_and_ends_without_a_trace(rig, in_flight: int) -> None:
    made = rig(in_flight, max_num_seqs=2, async_scheduling=in_flight == 2)
    for name in "abc":
        made.add(name, prompt=5, output=4)
    made.go_on(in_flight + 1)
    before = set(vars(made.scheduler))
    opened = _timeline(Core(made), True)["open"]
    assert sorted((bar[0], bar[2], bar[3]) for bar in opened) == [
        ("a", "decode", 0),
        ("b", "decode", 1),
        ("c", "waiting", -1),
    ]
    hooked = {"add_request", "schedule", "update_from_output", "_preempt_request", "_free_request"}
    assert set(vars(made.scheduler)) - before == hooked | {CHAINS, TIMELINE}
    made.step()
    made.abort("c")
    closed = _timeline(Core(made), True)["closed"]
    assert states(closed, "c") == [("waiting", -1)]
    assert _timeline(Core(made), False) is not None
    assert set(vars(made.scheduler)) == before
    assert _timeline(Core(made), False) is None
    made.run()
