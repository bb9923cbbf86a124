"""Requests of vLLM's own scheduler as they are recorded, and that nothing changes for it."""

from typing import Any

from replicas.channel import UNDRAINED_S, _requests
from replicas.request_recorder import RequestRecorder
from tests.vllm.harness import Rig, batching, engine_config


class Core:
    """As much of EngineCore as the channel sees."""

    def __init__(self, rig: Rig) -> None:
        self.scheduler = rig.scheduler


def rig(tiny_llama: Any, **args: Any) -> Rig:
    args = {"max_num_seqs": 4, "max_num_batched_tokens": 2048, "max_model_len": 2048, **args}
    config = engine_config(tiny_llama, additional_config=batching(), **args)
    return Rig(config, step_s=0.5)


def test_each_request_once_it_has_ended(tiny_llama: Any) -> None:
    made = rig(tiny_llama)
    made.add("before", prompt=20, output=2)
    recorder = RequestRecorder(made.scheduler, "me")
    made.add("a", prompt=20, output=3).arrival_time = 1000.0
    made.add("b", prompt=10, output=50).arrival_time = 1001.0
    made.add("c", prompt=10, output=50).arrival_time = 1002.0
    made.abort("c")
    for _ in range(4):
        made.step()
    made.abort("b")
    drained = recorder.drain()
    short = [
        (row["arrival_s"], row["input_tokens"], row["output_tokens"], row["cancelled"])
        for row in drained["requests"]
    ]
    assert short == [(1002.0, 10, 0, True), (1000.0, 20, 3, False), (1001.0, 10, 4, True)]
    assert [row["max_tokens"] for row in drained["requests"]] == [50, 3, 50]
    assert drained["lost"] == 0
    assert recorder.drain() == {"requests": [], "lost": 0}


def test_prompts_have_as_many_hashes_in_common_as_they_begin_alike(tiny_llama: Any) -> None:
    made = rig(tiny_llama)
    one = RequestRecorder(made.scheduler, "me")
    same = list(range(3, 403)) * 4
    made.add("a", prompt=same[:1100], output=1)
    made.add("b", prompt=same[:1023] + [2] * 600, output=1)
    made.add("c", prompt=same[:300], output=1)
    made.run()
    a, b, c = (row["prefix"] for row in one.drain()["requests"])
    assert (len(a), len(b), c) == (2, 3, [])
    assert a[0] == b[0]
    assert a[1] != b[1]
    one.stop()
    other = RequestRecorder(made.scheduler, "another")
    made.add("d", prompt=same[:1100], output=1)
    made.run()
    (d,) = (row["prefix"] for row in other.drain()["requests"])
    assert not set(a) & set(d)


def test_what_is_scheduled_is_the_same_with_and_without_it(tiny_llama: Any) -> None:
    def tokens(recorded: bool) -> tuple[float, dict[str, list[int]]]:
        made = rig(tiny_llama, max_num_seqs=8, blocks=24)
        if recorded:
            RequestRecorder(made.scheduler, "me")
        for number in range(30):
            made.add(f"r{number}", prompt=7 * number % 60 + 1, output=number % 40 + 1)
        made.run()
        return made.now_s, made.tokens

    assert tokens(True) == tokens(False)


def test_it_is_asked_for_from_outside_and_ends_without_a_trace(tiny_llama: Any) -> None:
    made = rig(tiny_llama)
    core, before = Core(made), set(vars(made.scheduler))
    assert _requests(core, "me", False) is None
    assert _requests(core, "me", True) == {"requests": [], "lost": 0}
    assert _requests(core, "another", True) is None
    made.add("a", prompt=20, output=1)
    made.run()
    assert len(_requests(core, "me", True)["requests"]) == 1
    assert _requests(core, "another", False) is None
    made.add("b", prompt=20, output=1)
    made.run()
    assert len(_requests(core, "me", False)["requests"]) == 1
    assert set(vars(made.scheduler)) == before
    # One that nobody drains ends, and the next call begins another.
    _requests(core, "me", True)
    made.now_s += UNDRAINED_S + 1
    made.add("c", prompt=20, output=1)
    assert not made.scheduler.brimful_requests.recording
    made.run()
    assert _requests(core, "another", True) == {"requests": [], "lost": 0}


def test_more_than_are_kept_are_lost_and_counted(tiny_llama: Any, monkeypatch: Any) -> None:
    made = rig(tiny_llama)
    monkeypatch.setattr("replicas.request_recorder.MOST_REQUESTS", 3)
    recorder = RequestRecorder(made.scheduler, "me")
    for number in range(5):
        made.add(f"r{number}", prompt=5, output=1)
    made.run()
    drained = recorder.drain()
    assert (len(drained["requests"]), drained["lost"]) == (3, 2)
