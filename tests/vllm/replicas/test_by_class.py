"""Classes on vLLM's own scheduler: requests that steps leave out keep all that they have."""

from collections import deque
from dataclasses import replace
from random import Random

import pytest
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

from controller.errors import ConfigError
from controller.models.step_time import StepModel
from controller.records import ClassTarget, Reserve
from controller.request_slo import KEY, RequestSlo
from tests.vllm.harness import Rig, batching, engine_config, limits

CLASSES = {
    "gold": {"itl_ms": 50, "ttft_ms": 2000, "default": True},
    "silver": {"itl_ms": 100, "ttft_ms": 6000, "priority": 1},
    "batch": {"ttft_ms": 600_000, "priority": 2},
}
SLOS = {
    "gold": RequestSlo(0.05, 99, 2.0),
    "silver": RequestSlo(0.1, 99, 6.0),
    "batch": RequestSlo(ttft_s=600.0),
}


def rig_of(
    tiny_llama, *, in_flight=1, policy="adaptive", classes=CLASSES, fails_open=False, **args
) -> Rig:
    settings = batching(policy=policy)
    settings["brimful"]["classes"] = classes
    config = engine_config(
        tiny_llama, additional_config=settings, async_scheduling=in_flight > 1, **args
    )
    return Rig(config, in_flight=in_flight, fails_open=fails_open)


def add(rig: Rig, req_id: str, name: str, prompt: int, output: int, adapter: int = 0) -> None:
    params = SamplingParams(
        max_tokens=output, ignore_eos=True, extra_args={KEY: SLOS[name].to_wire()}
    )
    more = {"arrival_time": rig.now_s, "priority": CLASSES[name].get("priority", 0)}
    if adapter:
        more["lora_request"] = LoRARequest(f"adapter{adapter}", adapter, "/nowhere")
    rig.scheduler.add_request(Request(req_id, [1] * prompt, params, None, **more))


def timed(rig: Rig, in_flight: int = 1) -> None:
    """A step takes 20 ms, 1 ms for each decode, 0.1 ms for each prompt token."""
    scheduled, took_s = rig.scheduler.schedule, deque([0.01] * (in_flight - 1))

    def schedule():
        out = scheduled()
        given = out.num_scheduled_tokens.values()
        decodes = sum(n == 1 for n in given)
        took_s.append(0.02 + 0.001 * decodes + 1e-4 * (sum(given) - decodes))
        rig.step_s = took_s.popleft()  # of the step whose output is taken next
        return out

    rig.scheduler.schedule = schedule


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("blocks", [200, 4096])
@pytest.mark.parametrize("seed", range(4))
def test_every_request_gets_every_token_once(tiny_llama, in_flight, blocks, seed):
    rig, random = rig_of(tiny_llama, in_flight=in_flight, blocks=blocks), Random(seed)
    timed(rig, in_flight)
    asked = {}
    for k in range(80):
        name, output = random.choice(list(CLASSES)), random.randint(1, 80)
        asked[f"{name}{k}"] = output
        add(rig, f"{name}{k}", name, random.randint(1, 60), output)
        rig.go_on(random.randint(0, 2))
    rig.run()
    assert all(rig.is_whole(req_id, output) for req_id, output in asked.items())


# 2 ms a decode: 20 of them and a gold one take its 50 ms.
TIGHT = limits(
    64,
    reason="bound",
    reserve=Reserve(),
    model=StepModel(0.01, 0.002, 0, 2e-5, 0, 0),
    by_class=(*[ClassTarget(0, 0, 0)] * 2, ClassTarget(0.05, 0.05, 0.05)),  # the SLA's own, batch's
)
LOOSE = {"gold": {"itl_ms": 50, "default": True}, "batch": {"priority": 2}}


def tight(tiny_llama, **args) -> Rig:
    """30 decodes without a promise run beside two gold ones."""
    rig = rig_of(tiny_llama, classes=LOOSE, **args)
    for k in range(30):
        add(rig, f"b{k}", "batch", 8, 60, adapter=int(k == 0 and "enable_lora" in args))
    for k in range(2):
        add(rig, f"g{k}", "gold", 8, 30)
    rig.exchange()
    rig.exchange(TIGHT)
    rig.go_on(5)
    return rig


@pytest.mark.parametrize("in_flight", [1, 2])
def test_own_code_that_fails_after_a_step_that_skipped_ends_no_engine(
    tiny_llama, in_flight, monkeypatch
):
    rig = tight(tiny_llama, in_flight=in_flight, fails_open=True)
    assert len(rig.step().num_scheduled_tokens) < 32
    monkeypatch.setattr(rig.scheduler, "state", lambda: 1 / 0)
    assert len(rig.step().num_scheduled_tokens) > 2
    rig.run()
    assert all(rig.is_whole(f"b{k}", 60) for k in range(30))


def test_beside_adapters_none_is_skipped(tiny_llama):
    rig = tight(tiny_llama, enable_lora=True, max_loras=1, max_lora_rank=8)
    assert len(rig.step().num_scheduled_tokens) == 32


def test_the_report_counts_late_tokens_by_what_each_was_promised(tiny_llama):
    rig = rig_of(tiny_llama, policy="static")
    rig.step_s = 0.07
    for name in CLASSES:
        add(rig, name, name, 20, 11)
    rig.run()
    report = rig.exchange()
    assert report.late_itl == 10  # gold's alone
    assert report.late_ttft == 0


def test_an_engine_that_cannot_cut_prompts_is_refused_for_a_classs_time_between_tokens(tiny_llama):
    with pytest.raises(ConfigError, match="enable_chunked_prefill"):
        rig_of(tiny_llama, enable_chunked_prefill=False, max_num_batched_tokens=1024)


def test_requests_that_do_not_count_for_autoscaling_are_reported_apart(tiny_llama):
    rig = rig_of(tiny_llama)
    for k in range(4):
        add(rig, f"g{k}", "gold", 30, 5)
    rig.go_on(2)
    assert rig.exchange().autoscaled is None
    unscaled = replace(SLOS["batch"], autoscale=False).to_wire()
    for k in range(400):  # more than may run
        params = SamplingParams(max_tokens=9, ignore_eos=True, extra_args={KEY: unscaled})
        request = Request(f"b{k}", [1] * 20, params, None, arrival_time=rig.now_s, priority=2)
        rig.scheduler.add_request(request)
    add(rig, "g4", "gold", 30, 50)
    rig.go_on(3)
    report = rig.exchange()
    load = report.autoscaled
    assert load is not None
    assert report.running + report.waiting > 300
    assert load.running + load.waiting == sum(f"g{k}" not in rig.ends for k in range(5))
    assert (load.prompts.n, load.prompts.input) == (5, 150)
    rig.run()
    load = rig.exchange().autoscaled
    assert load is not None
    assert (load.running, load.waiting, load.first_tokens) == (0, 0, 5)
    assert (load.lengths.n, load.lengths.output) == (5, 4 * 5 + 50)
    assert rig.exchange().lengths.n == 405
    assert not rig.scheduler._autoscaled._others


def unscaled_params(output: int, **more) -> SamplingParams:
    told = {KEY: replace(SLOS["batch"], autoscale=False).to_wire(), **more}
    return SamplingParams(max_tokens=output, ignore_eos=True, extra_args=told)


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("output", [1, 3])
@pytest.mark.parametrize("closed", [False, True])
def test_no_first_token_of_a_session_that_does_not_count_does(
    tiny_llama, in_flight, output, closed
):
    rig = rig_of(tiny_llama, in_flight=in_flight)
    for k in range(4):  # the last one ends the session
        session = Request(
            "s", [1] * 20, unscaled_params(output), None, arrival_time=rig.now_s, resumable=k < 3
        )
        rig.scheduler.add_request(session)
        rig.go_on(output + 2)
        assert rig.scheduler._autoscaled._others == ({"s"} if k < 3 else set())
        if closed and k == 2:
            rig.abort("s")
            break
    add(rig, "g", "gold", 30, 2)
    rig.run()
    report = rig.exchange()
    assert report.autoscaled is not None
    assert (report.ttft.n, report.autoscaled.first_tokens) == (4, 1)
    assert not rig.scheduler._autoscaled._others


def test_prompts_for_others_alone_of_a_class_that_does_not_count_are_left_out(tiny_llama):
    rig = rig_of(tiny_llama)
    rig.scheduler._role.for_another = lambda request: True
    params = unscaled_params(1, kv_transfer_params={"do_remote_decode": True})
    for k in range(100):
        rig.scheduler.add_request(Request(f"p{k}", [1] * 20, params, None, arrival_time=rig.now_s))
    rig.step()
    load = rig.exchange().autoscaled
    assert load is not None
    assert (load.running, load.waiting, load.prompts.n) == (0, 0, 0)
    rig.run()
    assert not rig.scheduler._autoscaled._others
