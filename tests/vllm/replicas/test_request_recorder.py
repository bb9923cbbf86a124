"""Requests of vLLM's own scheduler as they are recorded, and that nothing changes for it."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import Request

from replicas.engine.channel import UNDRAINED_S, _requests, _timeline, requests
from replicas.engine.request_recorder import RequestRecorder
from tests.vllm.harness import Core, Rig


def rig(tiny_llama: Any, fails_open: bool = False, **args: Any) -> Rig:
    args = {"max_num_seqs": 4, "max_num_batched_tokens": 2048, "max_model_len": 2048, **args}
    return Rig.led(tiny_llama, step_s=0.5, fails_open=fails_open, **args)


def test_each_request_once_it_has_ended(tiny_llama: Any) -> None:
    made = rig(tiny_llama)
    made.add("before", prompt=20, output=2)
    recorder = RequestRecorder(made.scheduler, "me")
    made.add("a", prompt=20, output=3).arrival_time = 1000.0
    made.add("b", prompt=10, output=50).arrival_time = 1001.0
    made.add("c", prompt=10, output=50).arrival_time = 1002.0
    made.abort("c")
    made.go_on(4)
    made.abort("b")
    drained = recorder.drain()
    short = [
        (row["arrival_s"], row["input_tokens"], row["output_tokens"], row["cancelled"])
        for row in drained["requests"]
    ]
    assert short == [(1002.0, 10, 0, True), (1000.0, 20, 3, False), (1001.0, 10, 4, True)]
    assert [row["max_tokens"] for row in drained["requests"]] == [50, 3, 50]
    assert drained["lost"] == 0
    assert drained["fresh"]
    assert recorder.drain() == {"requests": [], "lost": 0, "fresh": False}


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


def test_prompts_that_the_prefix_cache_tells_apart_have_no_hash_in_common(tiny_llama: Any) -> None:
    made = rig(tiny_llama)
    recorder = RequestRecorder(made.scheduler, "me")

    def add(name: str, **more: Any) -> None:
        params = SamplingParams(max_tokens=1)
        made.scheduler.add_request(Request(name, [5] * 1200, params, None, arrival_time=0, **more))

    def image(which: str, offset: int) -> MultiModalFeatureSpec:
        return MultiModalFeatureSpec(None, "image", which, PlaceholderRange(offset, 64), which)

    add("a")
    add("b", cache_salt="s")
    add("c", lora_request=LoRARequest("adapter", 1, "/nowhere"))
    add("d", mm_features=[image("1", 600)])
    add("e", mm_features=[image("2", 600)])
    for name in "abcde":
        made.abort(name)
    a, b, c, d, e = (row["prefix"] for row in recorder.drain()["requests"])
    assert len({a[0], b[0], c[0]}) == 3
    assert a[0] == d[0] == e[0]
    assert len({a[1], d[1], e[1]}) == 3


def test_a_prompt_for_another_engine_is_a_request_of_that_one(tiny_llama: Any) -> None:
    made = rig(tiny_llama)
    recorder = RequestRecorder(made.scheduler, "me")
    extra = {"kv_transfer_params": {"do_remote_decode": True}}
    params = SamplingParams(max_tokens=1, extra_args=extra)
    made.scheduler.add_request(Request("half", [5] * 20, params, None, arrival_time=0))
    made.run()
    assert recorder.drain()["requests"] == []


def test_an_error_of_its_own_costs_a_row_and_not_the_engine(tiny_llama: Any) -> None:
    made = rig(tiny_llama, fails_open=True)
    recorder = RequestRecorder(made.scheduler, "me")
    made.add("a", prompt=20, output=2).arrival_time = "yesterday"  # type: ignore[assignment]
    made.run()
    assert made.scheduler.guard.errors >= 1
    assert (made.scheduler.requests, recorder.drain()["requests"]) == ({}, [])


@pytest.mark.parametrize("timeline_first", [True, False])
@pytest.mark.parametrize("timeline_ends", [True, False])
def test_the_console_may_look_while_it_records(tiny_llama, timeline_first, timeline_ends):
    """Both stand around the same methods, and each may end before the other."""
    made = rig(tiny_llama)
    core, before = Core(made), set(vars(made.scheduler))

    def bars() -> int:
        return len(_timeline(core, True)["closed"])

    begin = [lambda: _timeline(core, True), lambda: _requests(core, "me", True)]
    for one in begin if timeline_first else begin[::-1]:
        one()
    made.add("a", prompt=20, output=2)
    made.run()
    assert (bars() > 0, len(_requests(core, "me", True)["requests"])) == (True, 1)
    if timeline_ends:
        _timeline(core, False)
    else:
        _requests(core, "me", False)
    made.add("b", prompt=20, output=2)
    made.run()
    if timeline_ends:
        assert len(_requests(core, "me", False)["requests"]) == 1
    else:
        assert bars() > 0
        _timeline(core, False)
    assert set(vars(made.scheduler)) == before


async def test_every_engine_of_a_replica_is_asked(tiny_llama: Any) -> None:
    """vLLM hands on the first engine's answer alone."""
    engines = {b"0": rig(tiny_llama), b"1": rig(tiny_llama)}

    async def _call_utility_async(method: str, *args: Any, engine: bytes) -> Any:
        return getattr(EngineCore, method)(Core(engines[engine]), *args)

    core = SimpleNamespace(core_engines=list(engines), _call_utility_async=_call_utility_async)
    client: Any = SimpleNamespace(engine_core=core)
    assert await requests(client, "me", on=True) == {"requests": [], "lost": 0, "fresh": True}
    for made in engines.values():
        made.add("a", prompt=20, output=2)
        made.run()
    drained = await requests(client, "me", on=True)
    assert drained is not None
    assert (len(drained["requests"]), drained["fresh"]) == (2, False)
    assert await requests(client, "another", on=True) is None


def test_it_is_asked_for_from_outside_and_ends_without_a_trace(tiny_llama: Any) -> None:
    made = rig(tiny_llama)
    core, before = Core(made), set(vars(made.scheduler))
    assert _requests(core, "me", False) is None
    assert _requests(core, "me", True) == {"requests": [], "lost": 0, "fresh": True}
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
    assert _requests(core, "another", True) == {"requests": [], "lost": 0, "fresh": True}


def test_more_than_are_kept_are_lost_and_counted(tiny_llama: Any, monkeypatch: Any) -> None:
    made = rig(tiny_llama)
    monkeypatch.setattr("replicas.engine.request_recorder.MOST_REQUESTS", 3)
    recorder = RequestRecorder(made.scheduler, "me")
    made.add_all(5, prompt=5, output=1)
    made.run()
    drained = recorder.drain()
    assert (len(drained["requests"]), drained["lost"]) == (3, 2)
