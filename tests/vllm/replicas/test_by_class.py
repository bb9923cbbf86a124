"""Classes on vLLM's own scheduler: requests that steps leave out keep all that they have."""

from dataclasses import replace

from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request

from controller.records import to_wire
from controller.request_slo import KEY, RequestSlo
from tests.vllm.harness import Rig, batching, engine_config

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
        max_tokens=output, ignore_eos=True, extra_args={KEY: to_wire(SLOS[name])}
    )
    more = {"arrival_time": rig.now_s, "priority": CLASSES[name].get("priority", 0)}
    if adapter:
        more["lora_request"] = LoRARequest(f"adapter{adapter}", adapter, "/nowhere")
    rig.scheduler.add_request(Request(req_id, [1] * prompt, params, None, **more))


def test_the_report_counts_late_tokens_by_what_each_was_promised(tiny_llama):
    rig = rig_of(tiny_llama, policy="static")
    rig.step_s = 0.07
    for name in CLASSES:
        add(rig, name, name, 20, 11)
    rig.run()
    report = rig.exchange()
    assert report.late_itl == 10  # gold's alone
    assert report.late_ttft == 0


def test_requests_that_do_not_count_for_autoscaling_are_reported_apart(tiny_llama):
    rig = rig_of(tiny_llama)
    for k in range(4):
        add(rig, f"g{k}", "gold", 30, 5)
    rig.go_on(2)
    assert rig.exchange().autoscaled is None
    unscaled = to_wire(replace(SLOS["batch"], autoscale=False))
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
