"""Every private thing of vLLM we lean on: an upgrade that changes one fails here, by name."""

import inspect
from collections import deque
from dataclasses import fields
from itertools import count

import pytest
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.core_client import InprocClient, MPClient, SyncMPClient
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.engine.output_processor import OutputProcessorOutput
from vllm.v1.request import RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from replicas.engine import channel
from replicas.engine.engine_options import cap_name
from replicas.engine.scheduler import RAN_TO_ITS_END, DynamicBatchScheduler
from replicas.engine.vllm_queues import in_order, second_queue
from tests.vllm.harness import BLOCK, SKIPS_APART, Rig, engine_config


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.fixture
def plain(tiny_llama):
    """vLLM's own scheduler, without a line of ours."""
    return Rig(engine_config(tiny_llama, async_scheduling=True), AsyncScheduler)


def test_the_scheduler_is_made_with_the_attributes_we_read(plain):
    scheduler = plain.scheduler
    assert (scheduler.max_num_running_reqs, scheduler.max_num_scheduled_tokens) == (64, 512)
    assert (scheduler.block_size, scheduler.num_spec_tokens) == (BLOCK, 0)
    assert (scheduler.running, scheduler.requests) == ([], {})
    assert scheduler.num_waiting_for_streaming_input == 0
    assert scheduler.get_request_counts() == (0, 0)
    assert scheduler.vllm_config.additional_config == {}
    assert scheduler.scheduler_config.async_scheduling is True
    assert scheduler.cache_config.kv_cache_size_tokens is None  # set by a real EngineCore
    assert len(scheduler.kv_cache_config.kv_cache_groups) == 1


def test_the_running_cap_and_the_token_budget_are_read_at_every_step(plain):
    for index in range(4):
        plain.add(f"r{index}", prompt=100, output=9)
    setattr(plain.scheduler, cap_name(plain.scheduler), 1)
    plain.scheduler.max_num_scheduled_tokens = 30
    first = plain.step()
    setattr(plain.scheduler, cap_name(plain.scheduler), 3)
    plain.scheduler.max_num_scheduled_tokens = 512
    second = plain.step()
    assert first.num_scheduled_tokens == {"r0": 30}
    assert second.num_scheduled_tokens == {"r0": 70, "r1": 100, "r2": 100}


def test_a_cap_below_what_runs_kills_the_engine(plain):
    # Why the cap handed to vLLM is never below the running count.
    for index in range(4):
        plain.add(f"r{index}", prompt=4, output=9)
    plain.step()
    plain.scheduler.max_num_running_reqs = 3
    with pytest.raises(AssertionError):
        plain.step()


def test_a_budget_below_the_running_decodes_starves_the_last_of_them(plain):
    # Why the budget handed to vLLM has a floor.
    for index in range(4):
        plain.add(f"r{index}", prompt=4, output=9)
    plain.step()
    plain.scheduler.max_num_scheduled_tokens = 2
    assert list(plain.step().num_scheduled_tokens) == ["r0", "r1"]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (Scheduler.schedule, ["self", "throttle_prefills"]),
        (Scheduler.update_from_output, ["self", "scheduler_output", "model_runner_output"]),
        (Scheduler.add_request, ["self", "request"]),
        (Scheduler._preempt_request, ["self", "request", "timestamp"]),
        (Scheduler._free_request, ["self", "request"]),
        (Scheduler._handle_stopped_request, ["self", "request"]),
        (Scheduler._update_request_as_session, ["self", "session", "update"]),
    ],
)
def test_the_methods_we_override_are_there_and_take_what_we_pass_on(function, names):
    assert parameters(function)[: len(names)] == names


def test_async_scheduling_differs_from_plain_in_the_two_methods_we_take_back():
    ours = {name for name, value in vars(AsyncScheduler).items() if inspect.isfunction(value)}
    both = {"_update_after_schedule", "_update_request_with_output"}  # the second: up to 0.32
    assert {"_update_after_schedule"} <= ours - {"__init__"} <= both


def test_with_async_scheduling_a_request_runs_ahead_of_its_tokens(tiny_llama):
    # Why a synchronous engine gets the plain methods: its pipeline stages could not follow.
    rig = Rig(engine_config(tiny_llama), AsyncScheduler, in_flight=3)
    rig.add("r", prompt=4, output=9)
    assert [list(rig.step().num_scheduled_tokens) for _ in range(2)] == [["r"], ["r"]]


def test_preemption_and_the_end_of_a_request_pass_through_the_hooks(tiny_llama):
    calls = []

    class Watched(AsyncScheduler):
        def _preempt_request(self, request, *args, **kwargs):
            calls.append("preempted")
            return super()._preempt_request(request, *args, **kwargs)

        def _free_request(self, request, *args, **kwargs):
            calls.append(request.status.name)
            return super()._free_request(request, *args, **kwargs)

    rig = Rig(engine_config(tiny_llama, blocks=1 + 4, async_scheduling=True), Watched, in_flight=2)
    rig.add("a", prompt=30, output=20)
    rig.add("b", prompt=30, output=20)
    rig.add("c", prompt=4, output=20)
    rig.abort("c")
    rig.run()
    assert calls.count("preempted") > 0
    assert sorted(set(calls) - {"preempted"}) == ["FINISHED_ABORTED", "FINISHED_LENGTH_CAPPED"]


def test_stop_strings_are_met_in_the_frontend_which_then_aborts():
    assert "reqs_to_abort" in {field.name for field in fields(OutputProcessorOutput)}
    assert "self.engine_core.abort_requests(processed_outputs.reqs_to_abort)" in (
        inspect.getsource(LLMEngine.step)
    )


def test_a_request_knows_its_blocks_and_a_block_who_uses_it(tiny_llama):
    rig = Rig(engine_config(tiny_llama, enable_prefix_caching=True), AsyncScheduler)
    request = rig.add("a", prompt=2 * BLOCK + 1, output=9)
    rig.step()
    manager = rig.scheduler.kv_cache_manager
    assert (manager.enable_caching, len(manager.kv_cache_config.kv_cache_groups)) == (True, 1)
    blocks = manager.coordinator.single_type_managers[0].req_to_blocks["a"]
    assert [block.ref_cnt for block in blocks] == [1, 1, 1]
    assert len(request.block_hashes) == 2
    assert getattr(rig.scheduler, "hash_block_size", BLOCK) == BLOCK  # not in 0.25
    assert manager.block_pool.get_cached_block(request.block_hashes[1], [0]) == [blocks[1]]
    assert request.skip_reading_prefix_cache is False


def test_the_batch_and_the_queue_can_be_read_request_by_request(plain):
    scheduler = plain.scheduler
    for index in range(66):
        plain.add(f"r{index}", prompt=2, output=9)
    plain.step()
    plain.step()
    first = scheduler.running[0]
    assert (first.num_computed_tokens, first.num_prompt_tokens, first.max_tokens) == (3, 2, 9)
    assert len(first._output_token_ids) == first.num_output_tokens == 2
    # First come, first served is a deque, which can be turned; the oldest is at its front.
    assert isinstance(scheduler.waiting, deque)
    assert [r.request_id for r in scheduler.waiting] == ["r64", "r65"]


def test_the_ways_a_request_ends_have_not_changed():
    ends = {status.name for status in RequestStatus if RequestStatus.is_finished(status)}
    assert {status.name for status in RAN_TO_ITS_END} == {
        "FINISHED_STOPPED",
        "FINISHED_LENGTH_CAPPED",
        "FINISHED_REPETITION",
    }
    assert ends - {status.name for status in RAN_TO_ITS_END} == {
        "FINISHED_ABORTED",
        "FINISHED_IGNORED",
        "FINISHED_ERROR",
    }


def test_engine_core_has_no_method_of_our_name_but_ours():
    assert vars(EngineCore)[channel.METHOD] is channel._exchange
    assert channel.METHOD not in inspect.getsource(inspect.getmodule(EngineCore))


def test_engine_core_finds_utility_methods_by_name_and_keeps_its_scheduler():
    source = inspect.getsource(inspect.getmodule(EngineCore))
    assert "getattr(self, method_name)" in source
    assert "self.scheduler: SchedulerInterface = Scheduler(" in source


def test_the_engine_clients_have_the_calls_we_make():
    from vllm.v1.engine.core_client import AsyncMPClient

    assert parameters(AsyncMPClient.call_utility_async) == ["self", "method", "args"]
    assert parameters(AsyncMPClient._call_utility_async) == ["self", "method", "args", "engine"]
    assert parameters(SyncMPClient.call_utility) == ["self", "method", "args"]
    assert issubclass(SyncMPClient, MPClient)
    assert not hasattr(InprocClient, "call_utility")
    assert "self.engine_core = EngineCore(" in inspect.getsource(InprocClient.__init__)
    assert "self.engine_core" in inspect.getsource(LLMEngine.__init__)


def test_the_engine_arguments_that_carry_us_are_there(tiny_llama):
    config = EngineArgs(
        model=str(tiny_llama),
        skip_tokenizer_init=True,
        scheduler_cls="replicas.scheduler.DynamicBatchScheduler",
        additional_config={"brimful": {}},
    ).create_engine_config()
    assert config.scheduler_config.get_scheduler_cls() is DynamicBatchScheduler
    assert config.additional_config == {"brimful": {}}
    assert "kv_cache_size_tokens" in {field.name for field in fields(config.cache_config)}


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_running_request_that_a_step_does_not_see_goes_on_in_the_next(tiny_llama, in_flight):
    config = engine_config(tiny_llama, async_scheduling=in_flight > 1)
    rig = Rig(config, AsyncScheduler if in_flight > 1 else Scheduler, in_flight=in_flight)
    rig.add_all(4, prompt=10, output=30)
    schedule, steps = rig.scheduler.schedule, count()

    def without_some():
        running = rig.scheduler.running
        apart = running[next(steps) % 2 : 3 : 2]
        running[:] = [r for r in running if r not in apart]
        out = schedule()
        assert not out.num_scheduled_tokens.keys() & {r.request_id for r in apart}
        rig.scheduler.running.extend(apart)
        return out

    rig.step()
    rig.scheduler.schedule = without_some
    rig.go_on(40)
    rig.scheduler.schedule = schedule
    rig.run()
    assert rig.all_whole(4, 30)


def test_the_second_queue_is_there_and_goes_first(plain):
    scheduler = plain.scheduler
    request = plain.add("a", prompt=7, output=3)
    passed_over = plain.add("b", prompt=7, output=3)
    scheduler.waiting.remove_request(passed_over)
    second_queue(scheduler).add_request(passed_over)
    assert [r.request_id for r in in_order(scheduler)] == ["b", "a"]
    assert scheduler.get_request_counts() == (0, 2)
    assert (scheduler.policy.value, scheduler.lora_config) == ("fcfs", None)
    assert (scheduler.finished_recving_kv_req_ids, request.lora_request) == (set(), None)
    assert [new.req_id for new in plain.step().scheduled_new_reqs] == ["b", "a"]


def test_one_that_a_step_passed_over_is_looked_at_first_in_the_next(plain):
    plain.add("a", prompt=7, output=3)
    blocked = plain.add("b", prompt=7, output=3)
    plain.add("c", prompt=7, output=3)
    setattr(plain.scheduler, cap_name(plain.scheduler), 1)
    plain.step()
    blocked.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    setattr(plain.scheduler, cap_name(plain.scheduler), 2)
    assert [new.req_id for new in plain.step().scheduled_new_reqs] == ["c"]
    assert [r.request_id for r in in_order(plain.scheduler)] == ["b"]
    assert bool(second_queue(plain.scheduler)) is True


def test_a_prompt_that_is_alone_is_bounded_by_the_token_budget(tiny_llama):
    # Where it ignores the threshold for one, no decode waits for what it takes.
    config = engine_config(tiny_llama, long_prefill_token_threshold=64, async_scheduling=True)
    rig = Rig(config, AsyncScheduler)
    rig.add("a", prompt=400, output=3)
    rig.scheduler.max_num_scheduled_tokens = 200
    assert rig.step().num_scheduled_tokens == {"a": 64 if SKIPS_APART else 200}
    rig.add("b", prompt=400, output=3)
    assert rig.step().num_scheduled_tokens == {"a": 64, "b": 64}


def test_a_scheduler_says_whether_it_starts_anybody(plain):
    running = plain.add("a", prompt=7, output=3)
    plain.step()
    plain.add("b", prompt=7, output=3)
    assert plain.scheduler.pause_state.name == "UNPAUSED"
    plain.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    assert plain.scheduler.pause_state.name == "PAUSED_NEW"
    plain.step()
    assert plain.scheduler.running == [running]


def test_what_a_request_may_wait_for_has_not_changed():
    waiting = {s.name for s in RequestStatus if not RequestStatus.is_finished(s)} - {"RUNNING"}
    assert waiting - {"WAITING", "PREEMPTED"} == {
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        "WAITING_FOR_REMOTE_KVS",
        "WAITING_FOR_STREAMING_REQ",
    }
    assert "_grammar" in {field.name for field in fields(StructuredOutputRequest)}


def test_each_group_of_layers_knows_the_blocks_of_all_that_hold_some(tiny_llama):
    rig = Rig(engine_config(tiny_llama), AsyncScheduler, window=2 * BLOCK)
    rig.add("a", prompt=2 * BLOCK + 1, output=9)
    rig.step()
    manager = rig.scheduler.kv_cache_manager
    held = [one.req_to_blocks for one in manager.coordinator.single_type_managers]
    assert [{key: len(blocks) for key, blocks in each.items()} for each in held] == 2 * [{"a": 3}]
    assert [block.is_null for block in held[0]["a"]] == [False, False, False]
    rig.abort("a")
    assert [dict(each) for each in held] == [{}, {}]
