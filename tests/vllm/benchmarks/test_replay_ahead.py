"""A replay a step ahead."""

import contextlib
import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import ModelRunnerOutput

from controller.config import Sla
from replicas.profiles.profile import Launch, LinearCost, StepProfile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import EngineOptions, Speculation, parse_policy
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
from simulator.workloads.traffic import draw_requests, draw_traffic

# A step of B decodes and P prompt tokens takes 1 + 0.01 B + 0.001 P s.
PLANT = StepProfile("plant", "", 20_000, 64, 512, LinearCost(1.0, 0.01, per_prefill_s=0.001))
ENGINE = EngineOptions(max_num_seqs=64, max_num_batched_tokens=512, async_scheduling=True)
BIG = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
IN_TURN = ENGINE.model_copy(update={"async_scheduling": False})


def served(
    requests: Sequence[Request],
    spec: str = "static",
    engine: EngineOptions = ENGINE,
) -> Trace:
    """These requests on the plant."""
    return replay(requests, parse_policy(spec, Sla(), engine), Ground(PLANT))


def test_what_comes_during_a_step_starts_in_the_one_after_the_next() -> None:
    requests = [Request(0.0, 100, 4), Request(0.5, 100, 2)]
    (_, ahead), (_, in_turn) = (served(requests, engine=e).outcomes for e in (ENGINE, IN_TURN))
    # The step of the first prompt, 1.1 s; ahead, a decode of 1.01 s has been scheduled with it.
    assert in_turn.scheduled_s == pytest.approx(1.1)
    assert ahead.scheduled_s == pytest.approx(1.1 + 1.01)
    assert ahead.first_token_s == pytest.approx(1.1 + 1.01 + 1.11)


def test_an_answer_that_ends_by_itself_is_computed_once_too_often() -> None:
    # Both say 3 tokens, one of them because its client allows no more: that is known ahead.
    requests = [Request(0.0, 10, 3, max_tokens=400), Request(0.0, 10, 3, 3), Request(0.0, 10, 9, 9)]
    trace = served(requests)
    assert [o.tokens for o in trace.outcomes] == [3, 3, 9]
    assert [s.decodes for s in trace.steps] == [0, 3, 3, 2, 1, 1, 1, 1, 1]
    in_turn = served(requests, engine=IN_TURN)
    assert [s.decodes for s in in_turn.steps] == [0, 3, 3, 1, 1, 1, 1, 1, 1]


def test_steps_follow_one_another_and_no_token_waits() -> None:
    trace = served([Request(0.0, 600, 50)] * 20)
    ends_s, took_s = trace.column("end_s"), trace.column("duration_s")
    assert np.diff(ends_s) == pytest.approx(took_s[1:])
    assert set(trace.gaps.end_s) <= set(ends_s)


LAUNCHED = replace(PLANT, launch=Launch(graph_s=3.0, eager_s=5.0, graph_tokens=300))


@pytest.mark.parametrize(("prompt", "launch_s"), [(100, 3.0), (299, 3.0), (300, 5.0)])
def test_the_output_of_the_step_before_waits_for_a_launch(prompt: int, launch_s: float) -> None:
    requests = [Request(0.0, 100, 20), Request(6.5, prompt, 2)]
    plan = parse_policy("static", Sla(), ENGINE)
    first, second = replay(requests, plan, Ground(LAUNCHED)).outcomes
    gaps_s = replay(requests[:1], plan, Ground(LAUNCHED)).gaps.length_s
    assert gaps_s == pytest.approx([1.01] * 19)  # of decodes alone it is hidden
    trace = replay(requests, plan, Ground(LAUNCHED))
    of_first = trace.gaps.length_s[trace.gaps.request == 0]
    assert max(of_first) == pytest.approx(launch_s)
    # The step itself was computed meanwhile, and ends with its launch.
    assert first.finished_s is not None
    assert second.first_token_s is not None
    assert of_first.sum() == pytest.approx(1.01 * 17 + launch_s, abs=0.05)


def test_without_a_step_ahead_the_steps_time_holds_its_launch() -> None:
    requests = [Request(0.0, 100, 20), Request(6.5, 100, 2)]
    plan = parse_policy("static", Sla(), IN_TURN)
    found = [replay(requests, plan, Ground(plant)).gaps.length_s for plant in (PLANT, LAUNCHED)]
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize("sized", [True, False])
def test_chunks_end_with_the_graphs_where_what_lies_beyond_is_late(sized: bool) -> None:
    cost = LinearCost(0.006, 1e-5, per_prefill_s=2e-5)
    launch = Launch(graph_s=0.009, eager_s=0.027, graph_tokens=512)
    card = StepProfile("card", "", 400_000, 256, 8192, cost, launch=launch)
    plan = parse_policy(
        "adaptive" if sized else "static", Sla(itl_ms=25), ENGINE.model_copy(update=BIG)
    )
    traffic = draw_traffic(load_workload("exponential:257,62"), 1200, None, 3)
    trace = replay(traffic.at(50.0), plan, Ground(card))
    late = trace.gaps.length_s[trace.gaps.end_s > 8.0] > 0.025
    tokens = (trace.column("decodes") + trace.column("prefill_tokens"))[400:]
    if sized:
        assert late.mean() < 0.01
        assert (tokens > 512).mean() < 0.005
    else:
        assert late.mean() > 0.05


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

    trace = replay(requests, plan, Ground(replace(PLANT, kv_tokens=kv_tokens)))

    # The last step may compute what nobody asked for; a replay ends with the last token.
    given = executor.given[: len(trace.steps)]
    assert len(executor.given) - len(given) <= 1
    tokens = [step.decodes + step.prefill_tokens for step in trace.steps]
    assert tokens == [sum(step.values()) for step in given]
    assert (sum(o.preemptions for o in trace.outcomes) > 0) == (kv_tokens == 1600)


def test_drafts_are_verified_ahead_too() -> None:
    requests = draw_requests(load_workload("exponential:60,60"), 60, 1.0, None, 2)
    plan = replace(
        parse_policy("static", Sla(), ENGINE), speculation=Speculation(tokens=3, acceptance=0.7)
    )
    trace = replay(requests, plan, Ground(replace(PLANT, kv_tokens=3200)))
    assert [o.tokens for o in trace.outcomes] == [r.output_tokens for r in requests]
    assert len(trace.gaps.length_s) < sum(r.output_tokens for r in requests) / 1.5


def test_drafts_by_batch_size_are_vllms_own_and_take_their_time() -> None:
    requests = [Request(0.0, 16, 40)] * 3 + [Request(0.0, 16, 90)]
    drafts = Speculation(tokens=4, acceptance=1.0, by_batch=((1, 1, 4), (2, 2, 0)))
    took_s = {}
    for draft_s in (0.0, 0.5):
        speculation = drafts.model_copy(update={"draft_s": draft_s})
        plan = replace(parse_policy("static", Sla(), ENGINE), speculation=speculation)
        trace = replay(requests, plan, Ground(PLANT))
        assert [o.tokens for o in trace.outcomes] == [40, 40, 40, 90]
        took_s[draft_s] = trace.end_s
        gaps = np.bincount(trace.gaps.request)
        assert gaps[:3].tolist() == [39] * 3  # together they draft nothing
        # Alone, five tokens a step, once the steps that were scheduled for four are over.
        assert 39 + 50 / 5 <= gaps[3] <= 39 + 50 / 5 + 2
    drafting = (took_s[0.5] - took_s[0.0]) / (4 * 0.5)  # steps of the last one alone
    assert drafting == pytest.approx(50 / 5, abs=2)
