"""A replay a step ahead."""

import contextlib
import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import ModelRunnerOutput

from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile
from simulator.replay.engine import Scenario, replay
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.request_maker import RequestMaker
from simulator.virtual.scheduler import (
    END,
    TOKEN,
    VirtualClock,
    VirtualScheduler,
    make_scheduler,
)
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

# A step of B decodes and P prompt tokens takes 1 + 0.01 B + 0.001 P s.
PLANT = StepProfile("plant", "", 20_000, 64, 512, LinearCost(1.0, 0.01, per_prefill_s=0.001))
ENGINE = EngineOptions(max_num_seqs=64, max_num_batched_tokens=512, async_scheduling=True)
IN_TURN = ENGINE.model_copy(update={"async_scheduling": False})


def served(
    requests: Sequence[Request],
    spec: str = "static",
    engine: EngineOptions = ENGINE,
) -> Trace:
    """These requests on the plant."""
    return replay(requests, parse_policy(spec, Sla(), engine), Scenario(PLANT))


def test_what_comes_during_a_step_starts_in_the_one_after_the_next() -> None:
    requests = [Request(0.0, 100, 4), Request(0.5, 100, 2)]
    (_, ahead), (_, in_turn) = (served(requests, engine=e).outcomes for e in (ENGINE, IN_TURN))
    # The step of the first prompt, 1.1 s; ahead, a decode of 1.01 s has been scheduled with it.
    assert in_turn.scheduled_s == pytest.approx(1.1)
    assert ahead.scheduled_s == pytest.approx(1.1 + 1.01)
    assert ahead.first_token_s == pytest.approx(1.1 + 1.01 + 1.11)


class LoopExecutor:
    """Answers vLLM's own loop at once, and keeps what it was given."""

    def __init__(self, scheduler: VirtualScheduler, requests: Sequence[Request]) -> None:
        self.scheduler, self.left = scheduler, [r.output_tokens for r in requests]
        self.given: list[dict[str, int]] = []
        self._now: Any = None

    def execute_model(self, scheduled: Any, non_block: bool) -> "Future[Any]":
        self._now = scheduled
        if scheduled.total_num_scheduled_tokens:
            self.given.append(dict(scheduled.num_scheduled_tokens))
        return done(ModelRunnerOutput([], {}) if not scheduled.num_scheduled_tokens else None)

    def sample_tokens(self, grammar: Any, non_block: bool) -> "Future[Any]":
        ids = list(self._now.num_scheduled_tokens)
        chunks = self.scheduler.chunks(self._now)
        return done(
            ModelRunnerOutput(
                ids, {one: k for k, one in enumerate(ids)}, [self._tokens(i, chunks) for i in ids]
            )
        )

    def _tokens(self, req_id: str, chunks: frozenset[str]) -> list[int]:
        if req_id in chunks:
            return []
        self.left[int(req_id)] -= 1
        return [END] if self.left[int(req_id)] == 0 else [TOKEN]


def done(value: Any) -> "Future[Any]":
    """Over already."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("kv_tokens", [1600, 20_000])
def test_it_schedules_what_vllms_own_loop_schedules(kv_tokens: int) -> None:
    requests = draw_requests(load_workload("exponential:100,40"), 60, math.inf, None, 1)
    plan = parse_policy("static", Sla(), ENGINE)
    scheduler = make_scheduler(
        VirtualScheduler,
        plan,
        kv_tokens=kv_tokens,
        max_model_len=min(32_768, kv_tokens),
        by_priority=False,
        clock=VirtualClock(),
    )
    core: Any = EngineCore.__new__(EngineCore)
    core.scheduler, core.batch_queue, core.batch_queue_size = scheduler, deque(maxlen=2), 2
    core.model_executor = executor = LoopExecutor(scheduler, requests)
    core.is_ec_consumer, core.is_pooling_model = True, False
    core._should_throttle_prefills = lambda: False
    core._process_aborts_queue = lambda: None
    core.capture_iteration_details = core.log_error_detail = contextlib.nullcontext
    core._attach_iteration_details = lambda outputs, details: None
    make = RequestMaker(plan, min(32_768, kv_tokens))
    for number, request in enumerate(requests):
        scheduler.add_request(make(number, request, 0.0))
    while scheduler.has_unfinished_requests():
        core.step_with_batch_queue()

    trace = replay(requests, plan, Scenario(replace(PLANT, kv_tokens=kv_tokens)))

    # The last step may compute unwanted tokens; a replay ends with the last token.
    given = executor.given[: len(trace.steps)]
    assert len(executor.given) - len(given) <= 1
    tokens = [step.decodes + step.prefill_tokens for step in trace.steps]
    assert tokens == [sum(step.values()) for step in given]
    assert (sum(o.preemptions for o in trace.outcomes) > 0) == (kv_tokens == 1600)
