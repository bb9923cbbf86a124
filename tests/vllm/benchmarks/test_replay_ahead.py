"""A replay a step ahead, a warm one, and one that is charged for own code."""

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

from benchmarks.replay.engine import Ground, replay
from benchmarks.virtual.plan import EngineOptions, Speculation, parse_policy
from benchmarks.virtual.scheduler import (
    END,
    TOKEN,
    RequestMaker,
    VirtualClock,
    VirtualScheduler,
    make_scheduler,
)
from benchmarks.virtual.trace import Trace
from benchmarks.workloads.catalog import load_workload
from benchmarks.workloads.requests import Request
from benchmarks.workloads.traffic import draw_requests
from controller.config import Sla
from replicas.profile import LinearCost, StepProfile

# A step of B decodes and P prompt tokens takes 1 + 0.01 B + 0.001 P s.
PLANT = StepProfile("plant", "", 20_000, 64, 512, LinearCost(1.0, 0.01, per_prefill_s=0.001))
ENGINE = EngineOptions(max_num_seqs=64, max_num_batched_tokens=512, async_scheduling=True)
IN_TURN = ENGINE.model_copy(update={"async_scheduling": False})


def served(
    requests: Sequence[Request],
    spec: str = "static",
    engine: EngineOptions = ENGINE,
    sla: Sla | None = None,
    **ground: Any,
) -> Trace:
    """These requests on the plant."""
    plan = parse_policy(spec, sla or Sla(), engine)
    return replay(requests, plan, Ground(PLANT, **ground))


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
    make = RequestMaker(plan, min(32_768, kv_tokens), 0)
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


WARM = draw_requests(load_workload("exponential:80,30"), 150, 1.0, None, 3)


@pytest.mark.parametrize("engine", [ENGINE, IN_TURN])
def test_a_warm_engine_knows_its_step_times_and_counts_nothing_of_the_warm_up(
    engine: EngineOptions,
) -> None:
    requests = tuple(Request(0.5 * k, 70, 12, 200) for k in range(30))
    cold, warm = (
        served(requests, "adaptive", engine, Sla(itl_ms=1500), warm_up=w) for w in ((), WARM)
    )
    assert [o.request for o in warm.outcomes] == list(requests)
    assert all(o.tokens == 12 for o in warm.outcomes)
    assert warm.outcomes[0].scheduled_s == 0.0
    assert len(warm.gaps.length_s) == 30 * 11
    assert cold.steps[0].predicted_s is None
    assert warm.steps[0].predicted_s == pytest.approx(warm.steps[0].duration_s, rel=0.01)
    assert all(0 <= s.start_s < s.end_s <= warm.end_s for s in warm.stays)


def test_what_learns_nothing_is_the_same_warm_and_cold() -> None:
    requests = tuple(Request(0.5 * k, 70, 12, 200) for k in range(30))
    for spec in ("static", "static:enable_prefix_caching=true", "clairvoyant", "reserved"):
        cold, warm = (served(requests, spec, warm_up=w) for w in ((), WARM))
        assert len(cold.steps) == len(warm.steps)
        assert [s.prefill_tokens for s in cold.steps] == [s.prefill_tokens for s in warm.steps]
        assert cold.end_s == pytest.approx(warm.end_s)


def test_own_code_makes_each_step_begin_later_and_hides_behind_a_step_ahead() -> None:
    requests = [Request(0.0, 100, 30)] * 5
    late_s = {}
    for name, engine in (("in turn", IN_TURN), ("ahead", ENGINE)):
        trace = served(requests, "adaptive", engine, charge_own_code=True)
        late_s[name] = np.diff(trace.column("end_s")) - trace.column("duration_s")[1:]
        assert len(trace.gaps.length_s) == 5 * 29
    assert late_s["in turn"].min() > 1e-6
    assert late_s["ahead"] == pytest.approx(0, abs=1e-9)


def test_vllm_by_itself_is_not_charged() -> None:
    requests = [Request(0.0, 100, 30)] * 5
    bare, charged = (served(requests, engine=IN_TURN, charge_own_code=c) for c in (False, True))
    assert bare.steps == charged.steps
