"""Each named rival in a short replay on vLLM's scheduler: what it decides is what happens."""

import math
from collections.abc import Sequence

import pytest

from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

FIG3 = load_profile("paper-fig3")
SLA = Sla(itl_ms=50)
STREAM = draw_requests(load_workload("exponential:400,60"), 60, 3.0, None, 5)
BURST = draw_requests(load_workload("exponential:150,200"), 60, math.inf, None, 5)


def served(spec: str, requests: Sequence[Request], kv_tokens: int = 40_000) -> Trace:
    profile = FIG3.with_kv_tokens(kv_tokens)
    return replay(requests, parse_policy(spec, SLA, engine_of(profile)), Ground(profile))


def preemptions(trace: Trace) -> int:
    return sum(outcome.preemptions for outcome in trace.outcomes)


def test_sarathi_is_vllms_static_chunk() -> None:
    settings = "max_num_seqs=40,max_num_batched_tokens=120"
    one, other = (served(f"{name}:{settings}", STREAM) for name in ("sarathi", "static"))
    assert one.steps == other.steps
    assert max(step.decodes + step.prefill_tokens for step in one.steps) == 120


def test_the_refiners_steps_are_inside_the_slo() -> None:
    trace = served("refiner:max_num_seqs=80", STREAM)
    assert trace.gaps.length_s.max() <= 0.05
    assert served("static", STREAM).gaps.length_s.max() > 0.05
    half = served("refiner:max_num_seqs=20,slo_frac=0.7", STREAM)
    assert half.gaps.length_s.max() <= 0.035


def test_qoserve_keeps_every_gap_or_lends_the_slack_as_it_is_told() -> None:
    engine = "max_num_seqs=80,token_step=16,least_tokens=16,low_memory_tokens=0"
    gaps = served(f"qoserve:slack=gaps,margin=1,{engine}", STREAM)
    assert gaps.gaps.length_s.max() <= 0.05
    paced = served(f"qoserve:{engine}", STREAM)
    assert paced.gaps.length_s.max() > 0.05


def test_a_short_prompt_overtakes_a_long_one_that_is_half_computed_in_qoserve() -> None:
    requests = [Request(0.0, 20, 100), Request(0.1, 6000, 5), Request(0.4, 200, 5)]
    spec = "slack=gaps,margin=1,token_step=16,least_tokens=16,low_memory_tokens=0"
    long, short = served(f"qoserve:{spec}", requests).outcomes[1:]
    assert short.first_token_s is not None and long.first_token_s is not None
    assert long.scheduled_s is not None and long.scheduled_s < short.first_token_s
    assert short.first_token_s < long.first_token_s
    in_order = served("static:max_num_batched_tokens=256", requests).outcomes
    assert (in_order[2].first_token_s or 0) > (in_order[1].first_token_s or 0)


@pytest.mark.parametrize(
    "spec",
    [
        "past_future:window=20",
        "past_future:lengths=average",
        "new_token_ratio:first=1,least_frac=1",
    ],
)
def test_what_looks_ahead_preempts_less_than_vllm(spec: str) -> None:
    plain = preemptions(served("static", BURST, 6000))
    assert preemptions(served(spec, BURST, 6000)) < plain / 2


def test_gradient2_starts_low_and_grows() -> None:
    trace = served("gradient2:first=10,least=10,window_s=0.2", BURST)
    running = [step.running for step in trace.steps]
    assert max(running[:3]) == 10
    assert 10 < max(running) < 60
    assert all(step.running <= step.cap for step in trace.steps)
