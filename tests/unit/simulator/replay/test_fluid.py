"""The fluid limit against its formula."""

import pytest

from replicas.profiles.profile import LinearCost, StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.fluid import fluid_limit_per_s
from simulator.workloads.requests import LengthStats

LENGTHS = LengthStats(mean_input=257, mean_output=447, mean_held=500, mean_context=128)


def profile(kv_tokens: int = 10**9, **cost: float) -> StepProfile:
    """An accelerator with this linear cost."""
    line = LinearCost(**{"fixed_s": 0.0269, "per_decode_s": 0.0002308} | cost)
    return StepProfile("p", "", kv_tokens, 256, 2048, line)


def test_it_is_the_decode_and_prefill_work_of_a_request_against_the_sla() -> None:
    found = fluid_limit_per_s(load_profile("paper-fig3"), LENGTHS, 0.05)
    work_s = 0.00012 * 257 + 0.0002308 * 446
    assert found == pytest.approx((0.05 - 0.0269) / (0.05 * work_s), rel=1e-6)


def test_kv_tokens_and_prefill_context_are_work_too() -> None:
    found = fluid_limit_per_s(
        profile(per_kv_s=1e-6, per_prefill_s=1e-4, per_context_s=1e-7), LENGTHS, 0.05
    )
    work_s = (1e-4 + 1e-7 * 128) * 257 + (0.0002308 + 1e-6 * 500) * 446
    assert found == pytest.approx((0.05 - 0.0269) / (0.05 * work_s), rel=1e-6)


def test_short_memory_limits_the_batch() -> None:
    # 10 requests of 500 tokens: a step of 29.2 ms, and 10 tokens of 447 in it.
    found = fluid_limit_per_s(profile(kv_tokens=5000), LENGTHS, 0.05)
    assert found == pytest.approx(10 / 447 / (0.0269 + 10 * 0.0002308), rel=0.01)


def test_without_an_sla_memory_alone_limits() -> None:
    found = fluid_limit_per_s(profile(kv_tokens=5000), LENGTHS, None)
    assert found == pytest.approx(10 / 447 / (0.0269 + 10 * 0.0002308), rel=0.03)


def test_an_sla_below_the_shortest_step_leaves_nothing() -> None:
    assert fluid_limit_per_s(profile(), LENGTHS, 0.02) == 0
