"""The replay against arithmetic, against plain vLLM, and against itself."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from controller.config import Sla
from controller.errors import ConfigError
from controller.fleet.loop import ControlLoop
from controller.records import BatchLimits
from replicas.engine.intervals import Scheduled
from replicas.engine.prefixes import PREFIX_TOKENS
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import summarise
from simulator.virtual import scheduler as virtual
from simulator.virtual.plan import EngineOptions, Plan, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

FIG3 = load_profile("paper-fig3")
SLA = Sla(itl_ms=50)


def plan(spec: str = "static", sla: Sla = SLA, **engine: int) -> Plan:
    """A policy on vLLM's default engine."""
    options = {"max_num_seqs": 256, "max_num_batched_tokens": 2048} | engine
    return parse_policy(spec, sla, EngineOptions.model_validate(options))


def served(
    requests: Sequence[Request],
    spec: str = "static",
    profile: StepProfile = FIG3,
    kv_tokens: int = 20_000,
    noise_cv: float = 0.0,
    **ground: int,
) -> Trace:
    """These requests under a policy, with a small KV memory: making a large one takes a while."""
    on = Ground(profile.with_kv_tokens(kv_tokens), Disturbances(noise_cv), **ground)
    return replay(requests, plan(spec), on)


def burst(workload: str, n: int, seed: int = 0) -> tuple[Request, ...]:
    """n requests at once."""
    return draw_requests(load_workload(workload), n, math.inf, None, seed)


@pytest.mark.parametrize("name", ["paper-fig3", "h100-Llama-2-70b-hf-tp4"])
def test_the_itl_of_one_request_is_the_profiles_step(name: str) -> None:
    profile = load_profile(name)
    trace = served([Request(0, 100, 200)], profile=profile)
    steps_s = [profile.step_s(1, 100 + k, 0, 0) for k in range(199)]
    assert trace.gaps.length_s == pytest.approx(steps_s, rel=1e-3)
    assert trace.outcomes[0].first_token_s == pytest.approx(profile.step_s(0, 0, 100, 5000))


def test_the_throughput_of_a_fixed_batch_is_batch_over_step_time() -> None:
    # 32 prompts of one token: one step in 2,000 is not a decode of all 32.
    found = summarise("static", served([Request(0, 1, 2000)] * 32, kv_tokens=64_000), SLA)
    assert found.output_tokens_per_s == pytest.approx(32 / FIG3.step_s(32, 0, 0, 0), rel=1e-3)
    assert found.itl_ms.mean == pytest.approx(1000 * FIG3.step_s(32, 0, 0, 0), rel=1e-3)
    assert found.mean_running == pytest.approx(32)
    assert found.kv_peak_frac == pytest.approx(32 * 2000 / 64_000)


def test_static_is_plain_vllm_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = draw_requests(load_workload("exponential:150,60"), 120, 20.0, None, seed=1)
    ours = served(requests, kv_tokens=8_000)

    def schedule(self: virtual.VirtualScheduler, *args: object) -> object:
        # What vLLM would do by itself: the numbers it was started with, untouched.
        output = AsyncScheduler.schedule(self, *args)
        self._scheduled.append(Scheduled.of(output, self.now_s()))
        return output

    monkeypatch.setattr(virtual.VirtualScheduler, "schedule", schedule)
    plain = served(requests, kv_tokens=8_000)
    assert sum(o.preemptions for o in ours.outcomes) > 0
    assert ours.outcomes == plain.outcomes
    assert [s.end_s for s in ours.steps] == [s.end_s for s in plain.steps]


@pytest.mark.parametrize("spec", ["paper", "adaptive"])
def test_a_seed_gives_the_same_answer_to_the_last_digit(spec: str) -> None:
    def once() -> Trace:
        requests = draw_requests(load_workload("azure-2023-conversation"), 60, 8.0, None, seed=3)
        return served(requests, spec, kv_tokens=30_000, noise_cv=0.1, disturbance_seed=3)

    one, other = once(), once()
    assert one.outcomes == other.outcomes
    assert one.steps == other.steps
    assert summarise(spec, one, SLA) == summarise(spec, other, SLA)


def test_an_idle_engine_costs_no_time() -> None:
    trace = served([Request(5.0, 10, 1), Request(100.0, 10, 1)])
    assert [o.scheduled_s for o in trace.outcomes] == [5.0, 100.0]
    assert trace.outcomes[1].first_token_s == pytest.approx(100 + FIG3.step_s(0, 0, 10, 50))


def test_a_request_that_comes_during_a_step_waits_for_its_end() -> None:
    trace = served([Request(0.0, 10, 3), Request(0.001, 10, 1)])
    assert trace.outcomes[1].scheduled_s == trace.outcomes[0].first_token_s


def test_a_request_longer_than_kv_memory_is_refused_and_the_rest_served() -> None:
    trace = served([Request(0, 10, 10), Request(0, 900, 200), Request(0, 900, 100)], kv_tokens=1008)
    assert [o.refused for o in trace.outcomes] == [False, True, False]
    assert [o.tokens for o in trace.outcomes] == [10, 0, 100]
    with pytest.raises(ConfigError, match=r"kv-tokens: 16 is not allowed: .* takes 20"):
        served([Request(0, 10, 10)], kv_tokens=16)


def test_requests_end_by_their_max_tokens_or_by_themselves() -> None:
    trace = served([Request(0, 10, 10, max_tokens=10), Request(0, 10, 10, max_tokens=500)])
    assert [o.tokens for o in trace.outcomes] == [10, 10]


@pytest.mark.parametrize(
    ("max_tokens", "running"),
    [(128, 39), (1024, 8), (None, 1), (50_000, 1)],  # 10,000 // (128 + what may be said)
)
def test_what_a_request_may_generate_is_what_its_client_allows_and_no_better(
    max_tokens: int | None, running: int
) -> None:
    # ``reserved`` sets aside all that a request may generate, so it shows what a policy is told.
    requests = [replace(r, max_tokens=max_tokens) for r in burst("fixed:128,128", 50)]
    trace = served(requests, "reserved", kv_tokens=10_000)
    assert max(step.running for step in trace.steps) == running
    assert all(o.tokens == 128 for o in trace.outcomes)


def test_without_chunked_prefill_a_prompt_is_computed_in_one_step() -> None:
    requests = [Request(0, 300, 5), Request(0, 300, 5), Request(0, 500, 100), Request(0, 200, 5)]
    spec = "static:max_num_seqs=8,max_num_batched_tokens=512"
    chunked, whole = (
        served(requests, spec + more) for more in ("", ",enable_chunked_prefill=false")
    )
    assert chunked.steps[0].prefill_tokens == 512
    assert whole.steps[0].prefill_tokens == 300
    # Its 600 tokens would not fit a step when they have to be computed again.
    assert [o.refused for o in whole.outcomes] == [False, False, True, False]
    with pytest.raises(ConfigError, match="max_num_batched_tokens without chunked prefill: 100"):
        served(
            requests,
            "static:max_num_seqs=8,max_num_batched_tokens=100" + ",enable_chunked_prefill=false",
        )


def test_a_threshold_for_long_prompts_lets_short_ones_in_beside_them() -> None:
    requests = [Request(0, 2000, 2), Request(0, 100, 2)]
    spec = "static:max_num_seqs=8,max_num_batched_tokens=512"
    long, short = served(requests, f"{spec},long_prefill_token_threshold=256").outcomes
    assert short.first_token_s is not None and long.first_token_s is not None
    assert short.scheduled_s == long.scheduled_s == 0.0
    with pytest.raises(ConfigError, match="long_prefill_token_threshold: 40000 is not allowed"):
        served(requests, "static:long_prefill_token_threshold=40000")


@pytest.mark.parametrize(
    ("policy", "order"), [("", [1, 2, 0]), ("scheduling_policy=fcfs", [0, 1, 2])]
)
def test_lower_priority_numbers_go_first_unless_it_is_set_otherwise(policy, order) -> None:
    requests = [Request(0, 10, 5, priority=p) for p in (3, 1, 2)]
    trace = served(requests, f"static:max_num_seqs=1,{policy}".rstrip(","))
    assert sorted(range(3), key=lambda k: trace.outcomes[k].finished_s or 0) == order


def test_a_shared_prefix_is_computed_once_with_prefix_caching() -> None:
    apart = [Request(2.0 * k, 600, 5) for k in range(10)]
    alike = [replace(r, prefix=("instructions",)) for r in apart]
    caching = "static:enable_prefix_caching=true"
    computed = [
        served(requests, spec).column("prefill_tokens").sum()
        for requests, spec in ((alike, "static"), (apart, caching), (alike, caching))
    ]
    assert computed == [6000, 6000, 600 + 9 * (600 - PREFIX_TOKENS)]


def test_the_watermark_is_vllms_own() -> None:
    requests = burst("exponential:100,100", 150)
    bare, marked = (
        sum(o.preemptions for o in served(requests, spec, kv_tokens=10_000).outcomes)
        for spec in ("static", "static:watermark=0.1")
    )
    assert marked < bare / 2


def test_a_policy_decides_through_leases_one_exchange_old(monkeypatch: pytest.MonkeyPatch) -> None:
    decide, decided = ControlLoop.exchange, []

    def exchange(self: ControlLoop, report: Any, config: Any, now_s: float) -> BatchLimits:
        limits = decide(self, report, config, now_s)
        decided.append((now_s, limits.max_running))
        return limits

    monkeypatch.setattr(ControlLoop, "exchange", exchange)
    trace = served(burst("fixed:100,150", 150), "paper:memory=live", kv_tokens=10_000)
    caps = {step.cap for step in trace.steps}
    assert max(caps) == 256
    assert min(caps) < 100
    first = next(step for step in trace.steps if step.cap < 256)
    lower = next(k for k, (_, cap) in enumerate(decided) if cap < 256)
    assert first.end_s - first.duration_s == pytest.approx(decided[lower + 1][0])


def test_sequential_serves_one_at_a_time() -> None:
    trace = served(burst("fixed:10,10", 5), "sequential")
    assert {step.running for step in trace.steps} == {1}


def test_the_learned_model_predicts_the_steps_it_has_not_seen() -> None:
    requests = draw_requests(load_workload("exponential:257,62"), 100, 4.0, None, seed=0)
    mape = summarise("static", served(requests), SLA).step_model_mape
    assert mape is not None and mape < 0.5
    assert summarise("static", served(requests[:1]), SLA).step_model_mape is None


def test_a_replay_that_is_not_drained_ends_with_the_last_arrival() -> None:
    requests = [Request(0.0, 10, 1000), Request(1.0, 10, 1000)]
    trace = replay(requests, plan(), Ground(FIG3.with_kv_tokens(20_000)), drain=False)
    assert 1.0 <= trace.end_s < 1.05
    assert [o.finished_s for o in trace.outcomes] == [None, None]
    assert 0 < trace.outcomes[0].tokens < 1000


def test_a_replay_may_be_given_up() -> None:
    requests = [replace(r, arrival_s=0.01 * k) for k, r in enumerate(burst("fixed:500,500", 300))]
    trace = replay(
        requests,
        plan("static:max_num_seqs=4"),
        Ground(FIG3.with_kv_tokens(20_000)),
        give_up=lambda now_s, arrivals_s, gaps: len(arrivals_s) > 100,
    )
    assert trace.gave_up
    assert 100 < len(trace.outcomes) < 300


def test_progress_counts_every_request_once() -> None:
    told: list[int] = []
    replay(
        burst("fixed:10,40", 30), plan(), Ground(FIG3.with_kv_tokens(20_000)), progress=told.append
    )
    assert sum(told) == 30
