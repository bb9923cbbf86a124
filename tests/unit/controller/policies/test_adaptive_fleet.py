"""``adaptive`` in the controller: the cap that memory and the SLA come to, number by number."""

import math

import pytest

from controller.models.memory import theta
from controller.models.step_time import StepModel
from controller.policies.adaptive_fleet import AdaptivePolicy
from controller.policies.base import Decision
from controller.records import ReplicaReport
from tests.builders import batching, engine, moments_of, pool, report

# 20 ms a step and 0.2 ms a decode: 0.1 ms more for its share of a prompt of 50 in 100 steps.
MODEL = StepModel(c0=0.02, c1=2e-4, c2=0.0, c3=2e-4, c4=0.0, sigma_s=0.0)
LENGTHS = moments_of([(50, 100)])
ROOMY = engine(kv_tokens=10**7)


def policy(itl_ms: float | None = None, **bounds: int) -> AdaptivePolicy:
    return AdaptivePolicy(batching(policy="adaptive", sla={"itl_ms": itl_ms}, max_running=bounds))


def test_nothing_known_is_the_bound() -> None:
    assert policy(50).fleet(report(), pool(), 0.0) == Decision(256, "bound")


def test_memory_holds_the_mean_request_half_an_empty_block_and_its_deviations() -> None:
    lengths = moments_of([(50, 100), (150, 300)])
    decided = policy().fleet(report(), pool(lengths=lengths), 0.0)
    m = lengths.mean_held + 8
    s = math.sqrt(lengths.variance_held)
    held = [b * m + theta(0.02) * s * math.sqrt(b) for b in range(1, 256)]
    assert decided == Decision(sum(h <= 20_000 for h in held), "memory")


def test_the_sla_holds_what_a_step_takes_with_its_share_of_prompts() -> None:
    known = pool(lengths=LENGTHS, model=MODEL)
    # 30.1 ms for 0.2 + 0.1 ms each.
    assert policy(50.1).fleet(report(engine=ROOMY), known, 0.0) == Decision(100, "sla")
    own = StepModel(c0=0.02, c1=5e-4, c2=0.0, c3=2e-4, c4=0.0, sigma_s=0.0)
    assert policy(50.1).fleet(report(engine=ROOMY, model=own), known, 0.0).max_running == 50
    # Without an SLA it is no matter.
    assert policy().fleet(report(engine=ROOMY), known, 0.0) == Decision(256, "bound")
    assert policy(50).fleet(report(engine=ROOMY), pool(model=MODEL), 0.0).reason == "bound"


def test_the_smaller_one_is_named() -> None:
    known = pool(lengths=LENGTHS, model=MODEL)
    assert policy(50).fleet(report(engine=engine(kv_tokens=5000)), known, 0.0).reason == "memory"


def test_a_model_that_keeps_no_kv_is_not_limited_by_memory() -> None:
    known = pool(lengths=LENGTHS, model=MODEL)
    assert policy().fleet(report(engine=engine(kv_tokens=0)), known, 0.0) == Decision(256, "bound")


def test_of_equal_ones_it_is_memorys() -> None:
    exact = pool(lengths=LENGTHS, model=StepModel(0.0, 0.25, 0.0, 0.0, 0.0, 0.0))
    assert policy(32_000).fleet(report(engine=ROOMY), exact, 0.0) == Decision(128, "sla")
    kv_tokens = next(
        kv
        for kv in range(1000, 40_000, 50)
        if policy().fleet(report(engine=engine(kv_tokens=kv)), exact, 0.0).max_running == 128
    )
    said = report(engine=engine(kv_tokens=kv_tokens))
    assert policy(32_000).fleet(said, exact, 0.0) == Decision(128, "memory")


def slow(c1: float, seq: int, replica_id: str = "r1") -> ReplicaReport:
    model = StepModel(c0=0.02, c1=c1, c2=0.0, c3=0.0, c4=0.0, sigma_s=0.0)
    return report(engine=ROOMY, model=model, seq=seq, replica_id=replica_id)


def test_the_published_cap_follows_by_a_tenth_a_report() -> None:
    p, known = policy(50), pool(lengths=moments_of([(50, 100)] * 50))
    caps = [p.fleet(slow(c1, k), known, k / 2).max_running for k, c1 in enumerate([0.000311] * 2)]
    assert caps == [96, 96]  # 30 ms / 0.311
    # 30 ms / 1.24 are 24.2: a tenth of the way from 96.5, and another one.
    caps = [p.fleet(slow(0.00124, k), known, k / 2).max_running for k in (3, 4)]
    assert caps == [89, 82]
    assert p.fleet(slow(0.00124, 1, "other"), known, 2.5).max_running == 24
    p.forget("r1")
    p.forget("nobody")
    assert p.fleet(slow(0.00124, 5), known, 3.0).max_running == 24


def test_what_is_not_limited_is_not_averaged() -> None:
    p, known = policy(50), pool(lengths=LENGTHS)
    free = StepModel(0.02, 0.0, 0.0, 0.0, 0.0, 0.0)
    unlimited = report(engine=ROOMY, model=free)
    assert p.fleet(unlimited, known, 0.0).max_running == 256
    assert p.fleet(slow(0.00124, 2), known, 0.5).max_running == 24
    assert p.fleet(unlimited, known, 1.0).max_running == 256


@pytest.mark.parametrize(
    ("bounds", "cap", "reason"),
    [
        ({"min": 97}, 97, "bound"),
        ({"min": 96}, 96, "sla"),
        ({"max": 96}, 96, "bound"),
        ({"max": 97}, 96, "sla"),
        ({"min": 120}, 120, "bound"),
        ({"max": 7}, 7, "bound"),
    ],
)
def test_a_cap_on_or_past_a_bound_is_the_bounds(bounds, cap, reason):
    decided = policy(50, **bounds).fleet(slow(0.000311, 1), pool(lengths=LENGTHS), 0.0)
    assert (decided.max_running, decided.reason) == (cap, reason)


def test_while_few_have_ended_it_follows_by_halves() -> None:
    p = policy(50)
    for ends, cap in ((49, 96), (49, 60), (50, 56)):  # to 24.2
        known = pool(lengths=moments_of([(50, 100)] * ends))
        c1 = 0.000311 if cap == 96 else 0.00124
        assert p.fleet(slow(c1, 1), known, 0.0).max_running == cap
