"""The replay against arithmetic, against plain vLLM, and against itself."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from controller.config import Sla
from controller.errors import ConfigError
from controller.fleet.loop import ControlLoop
from controller.records import BatchLimits
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Scenario, replay
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
    **scenario: int,
) -> Trace:
    """These requests under a policy, with a small KV memory: making a large one takes a while."""
    on = Scenario(profile.with_kv_tokens(kv_tokens), Disturbances(noise_cv), **scenario)
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


def test_a_request_longer_than_kv_memory_is_refused_and_the_rest_served() -> None:
    trace = served([Request(0, 10, 10), Request(0, 900, 200), Request(0, 900, 100)], kv_tokens=1008)
    assert [o.refused for o in trace.outcomes] == [False, True, False]
    assert [o.tokens for o in trace.outcomes] == [10, 0, 100]
    with pytest.raises(ConfigError, match=r"kv-tokens: 16 is not allowed: .* takes 20"):
        served([Request(0, 10, 10)], kv_tokens=16)


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
