"""Requests with priorities where KV memory is full."""

from dataclasses import replace

import numpy as np

from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import replay
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

IMPORTANT, OTHERS = 0, 1


def requests(seed: int) -> tuple[Request, ...]:
    """500 of which a tenth is important, at a third more than is carried."""
    rng = np.random.default_rng(seed)
    drawn = draw_requests(load_workload("fixed:200,100"), 500, 16.0, None, seed)
    return tuple(replace(r, priority=IMPORTANT if rng.random() < 0.1 else OTHERS) for r in drawn)


def ttft_s(policy: str, seed: int) -> np.ndarray:
    """Times to first token of the important requests, seconds."""
    profile = load_profile("paper-fig3").with_kv_tokens(24_000)
    plan = parse_policy(policy, Sla(), engine_of(profile))
    trace = replay(requests(seed), plan, Ground(profile))
    assert all(one.finished_s is not None for one in trace.outcomes)
    return np.array(
        [
            (one.first_token_s or 0.0) - one.request.arrival_s
            for one in trace.outcomes
            if one.request.priority == IMPORTANT
        ]
    )


def test_the_important_wait_no_longer_than_under_vllm() -> None:
    ours, vllms = ttft_s("adaptive", 1), ttft_s("static", 1)
    assert np.median(ours) <= np.median(vllms)
    assert ours.mean() <= vllms.mean()
