"""Classes on vLLM's own scheduler: requests that steps leave out keep all that they have."""

from collections import deque
from dataclasses import replace
from random import Random

import pytest
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request

from controller.errors import ConfigError
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


def rig_of(tiny_llama, *, in_flight=1, policy="adaptive", classes=CLASSES, **args) -> Rig:
    settings = batching(policy=policy)
    settings["brimful"]["classes"] = classes
    config = engine_config(
        tiny_llama, additional_config=settings, async_scheduling=in_flight > 1, **args
    )
    return Rig(config, in_flight=in_flight)


def add(rig: Rig, req_id: str, name: str, prompt: int, output: int, adapter: int = 0) -> None:
    params = SamplingParams(
        max_tokens=output, ignore_eos=True, extra_args={KEY: SLOS[name].to_wire()}
    )
    more = {"arrival_time": rig.now_s, "priority": CLASSES[name].get("priority", 0)}
    if adapter:
        more["lora_request"] = LoRARequest(f"adapter{adapter}", adapter, "/nowhere")
    rig.scheduler.add_request(Request(req_id, [1] * prompt, params, None, **more))


def prompts_keep_coming(rig: Rig) -> None:
    """So many strict prompts that the chunk binds: one alone would be computed whole, late once."""
    for k in range(60):
        add(rig, f"w{k}", "gold", 150, 2)
        rig.step()


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
def test_a_strict_request_in_a_crowd_has_its_tokens_in_time_and_nobody_loses_one(
    tiny_llama, in_flight
):
    rig = rig_of(tiny_llama, in_flight=in_flight)
    timed(rig, in_flight)
    for k in range(60):
        add(rig, f"b{k}", "batch", 20, 120)
    rig.go_on(30)
    assert rig.step_s > 0.07
    add(rig, "g", "gold", 30, 60)
    gaps, last_s, ran = [], None, []
    while "g" not in rig.ends:
        known = len(rig.tokens["g"])
        out = rig.step()
        ran.append(len(out.num_scheduled_tokens))
        assert len(rig.scheduler.running) >= 60
        if len(rig.tokens["g"]) > known:
            if last_s is not None:
                gaps.append(rig.now_s - last_s)
            last_s = rig.now_s
    # In a batch that is always as large, what a step of few takes is found out by one of those.
    assert max(gaps[10:]) <= 0.05 + 1e-9
    assert min(ran[20:-2]) > 10
    rig.run()
    assert rig.is_whole("g", 60)
    assert all(rig.is_whole(f"b{k}", 120) for k in range(60))
    assert rig.exchange().preemptions == 0
    assert not rig.scheduler._classes._slo_id or rig.scheduler._classes._long_gone


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


def test_no_step_leaves_out_who_has_no_time_to_spare(tiny_llama):
    rig = rig_of(tiny_llama)
    timed(rig)
    for k in range(24):  # together they take longer than gold has time
        add(rig, f"s{k}", "silver", 20, 60)
        add(rig, f"b{k}", "batch", 20, 60)
    add(rig, "g", "gold", 20, 100)
    last_s: dict[str, float] = {}
    longest = {"g": 0.0, "s": 0.0, "b": 0.0}
    for step in range(150):
        known = {r: len(t) for r, t in rig.tokens.items()}
        rig.step()
        for req_id, tokens in rig.tokens.items():
            if len(tokens) > known.get(req_id, 0):
                if step > 20:
                    gap_s = rig.now_s - last_s.get(req_id, rig.now_s)
                    longest[req_id[0]] = max(longest[req_id[0]], gap_s)
                last_s[req_id] = rig.now_s
    assert longest["g"] <= 0.05 + 1e-9
    assert 0.05 < longest["s"] <= 0.1 + 1e-9
    assert longest["b"] <= 1.0


def test_the_report_counts_late_tokens_by_what_each_was_promised(tiny_llama):
    rig = rig_of(tiny_llama, policy="static")
    rig.step_s = 0.07
    for name in CLASSES:
        add(rig, name, name, 20, 11)
    rig.run()
    report = rig.exchange()
    assert report.late_itl == 10  # gold's alone
    assert report.late_ttft == 0


def test_the_default_is_the_slas(tiny_llama):
    rig = rig_of(tiny_llama)
    rig.add("a", prompt=20, output=5)
    rig.step()
    assert rig.scheduler._read_batch().slos == (RequestSlo(),)
    rig.scheduler.configure({"policy": "adaptive", "sla": {"itl_ms": 80}})
    rig.exchange(limits(64))
    rig.run()
    assert rig.is_whole("a", 5)


def test_an_engine_that_cannot_cut_prompts_is_refused_for_a_classs_time_between_tokens(tiny_llama):
    with pytest.raises(ConfigError, match="enable_chunked_prefill"):
        rig_of(tiny_llama, enable_chunked_prefill=False, max_num_batched_tokens=1024)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_long_loose_prompt_lets_a_strict_one_that_comes_later_go_first(tiny_llama, in_flight):
    rig = rig_of(tiny_llama, in_flight=in_flight)
    timed(rig, in_flight)
    add(rig, "d", "gold", 20, 200)  # what makes steps short
    prompts_keep_coming(rig)
    add(rig, "b", "batch", 900, 5)
    while not rig.scheduler.requests["b"].num_computed_tokens:
        rig.step()
    add(rig, "g", "gold", 500, 5)
    loose, strict = (rig.scheduler.requests[name] for name in "bg")
    computed = loose.num_computed_tokens
    assert computed < 900
    rig.step()
    while strict.num_computed_tokens < 500:  # what the last step has left is the loose one's
        assert loose.num_computed_tokens == computed
        rig.step()
    rig.run()
    assert rig.is_whole("b", 5) and rig.is_whole("g", 5) and rig.is_whole("d", 200)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_long_loose_prompt_takes_what_short_strict_ones_leave_and_the_limit_goes_again(
    tiny_llama, in_flight
):
    rig = rig_of(tiny_llama, in_flight=in_flight)
    timed(rig, in_flight)
    for k in range(10):
        add(rig, f"d{k}", "gold", 20, 200)
    rig.go_on(60)
    add(rig, "b", "batch", 900, 5)
    while not rig.scheduler.requests["b"].num_computed_tokens:
        rig.step()
    loose, config = rig.scheduler.requests["b"], rig.scheduler.scheduler_config
    add(rig, "g", "gold", 10, 5)
    before = loose.num_computed_tokens
    rig.step()
    # Both in one step, the one that came later whole.
    assert rig.scheduler.requests["g"].num_computed_tokens >= 10
    assert before + 16 < loose.num_computed_tokens < 900
    assert 0 < config.long_prefill_token_threshold < 900
    rig.run()
    assert config.long_prefill_token_threshold == 0
    assert rig.is_whole("b", 5) and rig.is_whole("g", 5) and rig.is_whole("d0", 200)


def test_who_is_left_out_is_who_was_meant_where_decodes_go_first(tiny_llama):
    rig = rig_of(tiny_llama)
    for name in ("a", "b"):
        add(rig, name, "gold", 10, 50)
    rig.go_on(3)
    add(rig, "long", "gold", 1000, 5)
    rig.step()
    running = rig.scheduler.running
    running.insert(0, running.pop())
    before_step = rig.scheduler.governor.before_step

    def leaving_b_out(state, now_s, read_batch):
        read_batch()
        asked = before_step(state, now_s, read_batch)
        return replace(asked, skipped=(2,), decodes_first=True)

    rig.scheduler.governor.before_step = leaving_b_out
    assert rig.step().num_scheduled_tokens.keys() == {"long", "a"}
    assert [r.request_id for r in running] == ["long", "a", "b"]


LORA = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}


def adapters(rig: Rig) -> set[int]:
    return {r.lora_request.lora_int_id for r in rig.scheduler.running if r.lora_request}


@pytest.mark.parametrize("in_flight", [1, 2])
def test_nobody_starts_with_an_adapter_too_many_beside_those_that_are_left_out(
    tiny_llama, in_flight
):
    rig = rig_of(tiny_llama, in_flight=in_flight, **LORA)
    timed(rig, in_flight)
    for k in range(55):
        add(rig, f"b{k}", "batch", 20, 120, adapter=1 if k == 0 else 2)
    rig.go_on(30)
    add(rig, "g", "gold", 30, 150, adapter=2)
    while len(rig.step().num_scheduled_tokens) >= len(rig.scheduler.running):
        pass  # as many adapters as may run: soon steps leave out as ever
    add(rig, "c", "gold", 20, 50, adapter=3)
    add(rig, "d", "gold", 20, 50)  # which may start
    while rig.scheduler.has_unfinished_requests():
        rig.step()
        assert len(adapters(rig)) <= 2
    rig.run()
    assert all(rig.is_whole(f"b{k}", 120) for k in range(55))
    assert rig.is_whole("g", 150) and rig.is_whole("c", 50) and rig.is_whole("d", 50)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_prompt_that_gives_way_keeps_its_adapters_place(tiny_llama, in_flight):
    rig = rig_of(tiny_llama, in_flight=in_flight, **LORA)
    timed(rig, in_flight)
    add(rig, "d", "gold", 20, 200, adapter=1)
    rig.go_on(60)
    add(rig, "b", "batch", 900, 5, adapter=2)
    while not rig.scheduler.requests["b"].num_computed_tokens:
        rig.step()
    add(rig, "g", "gold", 20, 100, adapter=3)
    add(rig, "h", "gold", 500, 5, adapter=1)  # which may start, so the prompt would give way to it
    while rig.scheduler.has_unfinished_requests():
        rig.step()
        assert len(adapters(rig)) <= 2
    rig.run()
    assert rig.is_whole("b", 5) and rig.is_whole("g", 100) and rig.is_whole("d", 200)


def half_computed(rig: Rig, in_flight: int) -> Request:
    """A long prompt that can wait, beside a strict decode that makes steps short."""
    timed(rig, in_flight)
    add(rig, "d", "gold", 20, 900)
    prompts_keep_coming(rig)
    add(rig, "b", "batch", 900, 5)
    while not rig.scheduler.requests["b"].num_computed_tokens:
        rig.step()
    return rig.scheduler.requests["b"]


def steps_until_its_end(rig: Rig) -> int:
    steps = 0
    while "b" not in rig.ends:
        rig.step()
        steps += 1
    return steps


@pytest.mark.parametrize("in_flight", [1, 2])
def test_while_vllm_starts_nobody_prompts_give_way_to_nobody_who_waits(tiny_llama, in_flight):
    alone = rig_of(tiny_llama, in_flight=in_flight)
    half_computed(alone, in_flight)
    rig = rig_of(tiny_llama, in_flight=in_flight)
    half_computed(rig, in_flight)
    rig.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    add(rig, "g", "gold", 500, 5)
    # Who waits counts as demand, so chunks may be a little larger or smaller.
    assert abs(steps_until_its_end(rig) - steps_until_its_end(alone)) <= 1
    assert not rig.scheduler.requests["g"].num_computed_tokens
    rig.scheduler.set_pause_state(PauseState.UNPAUSED)
    rig.run()
    assert rig.is_whole("b", 5) and rig.is_whole("g", 5) and rig.is_whole("d", 900)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_prompts_give_way_once_in_sixteen_steps_to_one_that_vllm_does_not_start(
    tiny_llama, in_flight
):
    rig = rig_of(tiny_llama, in_flight=in_flight)
    loose = half_computed(rig, in_flight)
    manager = rig.scheduler.kv_cache_manager
    allocated = manager.allocate_slots
    manager.allocate_slots = lambda request, *args, **more: (
        None if request.request_id == "g" else allocated(request, *args, **more)
    )
    add(rig, "g", "gold", 500, 5)
    before = loose.num_computed_tokens
    got_on = 0
    for _ in range(4):
        rig.step()
        got_on += loose.num_computed_tokens > before
        before = loose.num_computed_tokens
    assert got_on == 3
    manager.allocate_slots = allocated
    rig.run()
    assert rig.is_whole("b", 5) and rig.is_whole("g", 5) and rig.is_whole("d", 900)


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
