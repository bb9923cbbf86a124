"""A connector that loads what a request's own parameters ask for, as NIXL does."""

import pytest
from vllm.config import KVTransferConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request, RequestStatus

from controller.records import StepLimits
from replicas.engine.scheduler import DynamicBatchScheduler
from replicas.engine.step_sample import step_sample
from tests.vllm.connector import IdleConnector
from tests.vllm.harness import Rig, batching, engine_config


class Timed(Rig):
    """Steps take 30 ms and 0.1 ms a token."""

    def step(self):
        before, scheduled = self.step_s, self.scheduler.schedule()
        self.step_s = 0.03 + 1e-4 * scheduled.total_num_scheduled_tokens
        self._queue.append((scheduled, self._run(scheduled)))
        self.now_s += self.step_s
        self.take()
        self.step_s = before
        return scheduled


class ByRequest(IdleConnector):
    loads_by_request = True

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if not (request.kv_transfer_params or {}).get("do_remote_prefill"):
            return 0, False
        return request.num_prompt_tokens - 1 - num_computed_tokens, True


def rig_of(tiny_llama, connector: bool, ttft_ms: float | None = None) -> Rig:
    transfer = KVTransferConfig(
        kv_connector="ByRequest", kv_role="kv_both", kv_connector_module_path=__name__
    )
    config = engine_config(
        tiny_llama,
        blocks=1250,
        max_num_batched_tokens=2048,
        kv_transfer_config=transfer if connector else None,
        additional_config=batching(policy="adaptive", sla={"itl_ms": 50, "ttft_ms": ttft_ms}),
    )
    return Timed(config, DynamicBatchScheduler)


def add(
    rig: Rig, name: str, prompt: int, output: int, params: dict[str, bool] | None, **fields: bool
) -> Request:
    extra = {"kv_transfer_params": params} if params else None
    request = Request(
        name,
        [1] * prompt,
        SamplingParams(max_tokens=output, ignore_eos=True, extra_args=extra),
        None,
        arrival_time=rig.now_s,
        **fields,
    )
    rig.scheduler.add_request(request)
    return request


@pytest.mark.parametrize("ttft_ms", [None, 2000, 60])
def test_loads_begin_beside_a_prompt_that_takes_every_chunk(tiny_llama, ttft_ms):
    """They stand before what computes its prompt here, and no chunk holds them up.

    Nor a TTFT in which their prompts could not be computed here: they do not step aside.
    """
    rig = rig_of(tiny_llama, True, ttft_ms)
    for k in range(20):
        rig.add(f"d{k}", 20, 400)
    rig.go_on(60)
    rig.add("long", 1000, 4)
    rig.add("behind", 1000, 4)
    while not 0 < rig.scheduler.requests["long"].num_computed_tokens < 500:
        rig.step()
    loads = [add(rig, f"l{k}", 300, 4, {"do_remote_prefill": True}) for k in range(3)]
    rig.step()
    assert rig.scheduler.requests["long"].num_computed_tokens < 1000
    assert all(r.status == RequestStatus.WAITING_FOR_REMOTE_KVS for r in loads)


@pytest.mark.parametrize("ttft_ms", [None, 2000])
def test_more_input_of_a_session_is_taken_out_of_no_queue(tiny_llama, ttft_ms):
    rig = rig_of(tiny_llama, True, ttft_ms)
    rig.add("s", 20, 2, resumable=True)
    rig.go_on(3)
    add(rig, "s", 20, 2, {"do_remote_prefill": True}, resumable=True)
    rig.add("other", 20, 2)
    rig.go_on(9)
    assert len(rig.tokens["s"]) == 4
    assert rig.is_whole("other", 2)


def test_prompts_that_nobody_sends_are_decided_on_as_without_a_connector(tiny_llama):
    decided: list[list[StepLimits]] = []
    for connector in (True, False):
        rig, limits = rig_of(tiny_llama, connector), []
        for k in range(60):
            rig.add(f"r{k}", 300 + k, 40)
            rig.step()
            limits.append(rig.scheduler.governor._last_step)
        rig.run()
        decided.append(limits)
    assert decided[0] == decided[1]


@pytest.mark.parametrize("remote", [True, False])
def test_a_loaded_prompt_is_none_that_starts_here_and_no_backlog(tiny_llama, remote):
    rig = rig_of(tiny_llama, True)
    params = {"do_remote_prefill": True} if remote else None
    request = add(rig, "r", 300, 4, params)
    assert rig.scheduler.exchange(None, "replica", "group")["prompt_backlog_tokens"] == (
        0 if remote else 300
    )
    scheduled = rig.step()
    if remote:
        assert request.status == RequestStatus.WAITING_FOR_REMOTE_KVS
        rig.scheduler.finished_recving_kv_req_ids.add("r")
        scheduled = rig.step()
    sample, ids = step_sample(scheduled, 0.0)
    assert ids == ["r"]
    assert (sample.prefill_tokens, sample.started) == ((1, ()) if remote else (300, (300,)))


def test_a_prompt_for_another_engine_says_nothing_of_lengths(tiny_llama):
    rig = rig_of(tiny_llama, True)
    for k in range(5):
        add(rig, f"p{k}", 300, 1, {"do_remote_decode": True})
    rig.add("whole", 200, 3)
    rig.run()
    report = rig.exchange()
    assert (report.finished, report.lengths.n) == (1, 1)
    assert report.lengths.mean_output >= 3  # cut off after one token, not short
    assert report.prompts.n == 6
